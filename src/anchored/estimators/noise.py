"""Estimate the distribution of observations about the ensemble's mean, from residuals of rows that were left out.

Every step is robust: a few rows that are unlike all others, in X or in y, must not change the intervals of the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from anchored import trees
from anchored.estimators.selection import MIN_VARIANCE, SELECTION_FOLDS, Pilots, shortened, weighted_mean
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import CenteredGaussian
from anchored.model.networks import MLP
from anchored.model.predictive import SHAPE_RANGES, Shape
from anchored.types import Array, OnProgress

RESIDUAL_FOLDS = 10
MAX_ROWS_OF_ALL_FOLDS = 2_000  # of more rows, only half of the folds are left out in turn
RESIDUAL_SHARE, NOISE_MODEL_SHARE = 0.8, 0.1  # shares of the epochs of the fit
NOISE_PRIOR_SCALE = 0.7  # prior scale of the noise model
FIRST_NOISE_MEMBER = 10**6  # index of the noise model's first member, larger than that of any other member
N_MEMBERS = 3  # per fold
AVERAGE_SPREAD_WEIGHT = 2.0  # of the average over rows, beside the N_MEMBERS − 1 degrees of freedom of one row
MAX_SPREAD_QUANTILE = 0.98  # larger spreads are set to this quantile in the average
ROWS_PER_PARAMETER = 15  # fewer rows do not tell a shape of so many parameters
MIN_VALUES_OF_MIXTURE = 20  # different values of a target
SIMPLEX_STEP = 0.5  # between the parameters that the search for a shape starts from
MAX_SHAPE_ROWS = 10_000  # the shape is fitted to a random subset of longer data
MAX_RESIDUAL = 10.0  # in robust standard deviations; larger residuals are set to it
FACTOR_RANGE = 0.05, 150.0  # of the noise variance, relative to the mean squared residual
MAD_OF_NORMAL = 0.6745  # median of |z| for a standard normal


@dataclass(frozen=True)
class ObservationNoise:
    """How observations scatter about the ensemble's mean; variances are relative to the variance of y.

    The predictive distribution has the given shape; its variance is that between members plus the noise variance.
    """

    variance: np.ndarray  # (outputs,); its average if it varies with x
    model: MemberPosterior | None  # how the noise varies with x; None if it is constant
    shape: Shape


def estimate(
    pilots: Pilots,
    model: BayesianModel,
    force_model: bool,
    on_progress: OnProgress | None = None,
) -> ObservationNoise:
    """Estimate the observation noise from out-of-fold residuals.

    Let r be the residual of the mean of m members at a row left out, and v the variance between members there. The
    observation varies about the posterior mean with the predictive variance, v plus the noise variance, and the mean of
    m members varies about it with v/m. The variance of r is therefore (1 + 1/m) v plus the noise variance, and the
    noise is what explains the residuals best. A row of unusual spread says little about the noise, and counts little.

    The noise model, which predicts how the noise varies with x, is fitted to the residuals alone, because a variance
    output that is trained together with the mean overfits. At last, the shape of the predictive distribution is
    fitted, together with a factor of the noise variance.

    Parameters
    ----------
    pilots : Pilots
        Members that predict the rows they were not trained on.
    model : BayesianModel
        The model of the fit.
    force_model : bool
        Whether the noise must vary with x, even if a constant variance predicts held-out residuals better.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    ObservationNoise
        The estimate.
    """
    n_left_out = RESIDUAL_FOLDS if len(pilots.data.weights) <= MAX_ROWS_OF_ALL_FOLDS else RESIDUAL_FOLDS // 2
    outputs = pilots.out_of_fold([model], RESIDUAL_FOLDS, RESIDUAL_SHARE, N_MEMBERS, n_left_out, on_progress)[0]
    outputs = outputs.astype(np.float64)
    data = trees.take(pilots.data, np.flatnonzero(pilots.folds(RESIDUAL_FOLDS) < n_left_out))
    residual = _clipped(np.asarray(data.targets) - outputs.mean(axis=0))
    mean_square = weighted_mean(residual**2, data.weights) + MIN_VARIANCE
    member_variance = (1 + 1 / N_MEMBERS) * _spread(outputs, data.weights)

    log_ratio, posterior = _noise_model(replace(pilots, data=data), residual, mean_square)
    rows = np.random.default_rng(pilots.seed).permutation(np.flatnonzero(data.weights[:, 0] > 0))[:MAX_SHAPE_ROWS]
    residual, member_variance, weights = (
        residual[rows],
        member_variance[rows],
        np.asarray(data.weights, np.float64)[rows],
    )
    families = [_families(len(np.unique(target))) for target in np.asarray(data.targets).T]
    constant = _fit_shapes(residual, np.broadcast_to(mean_square, residual.shape), member_variance, weights, families)
    varying = _fit_shapes(residual, mean_square * np.exp(log_ratio[rows]), member_variance, weights, families)
    has_model = force_model or sum(fit.score for fit in varying) < sum(fit.score for fit in constant)
    fits = varying if has_model else constant
    variance = mean_square * np.array([fit.factor for fit in fits])
    average = variance * weighted_mean(np.exp(log_ratio), data.weights) if has_model else variance
    shape = Shape(**{field.name: np.array([getattr(fit.shape, field.name) for fit in fits]) for field in fields(Shape)})
    likelihood = CenteredGaussian(np.asarray(variance, jnp.result_type(float)))
    noise_model = replace(posterior, model=replace(posterior.model, likelihood=likelihood)) if has_model else None
    return ObservationNoise(average, noise_model, shape)


def _clipped(residual: np.ndarray) -> np.ndarray:
    """Clip residuals, (rows, outputs), at MAX_RESIDUAL robust standard deviations of their output."""
    std = np.median(np.abs(residual), axis=0) / MAD_OF_NORMAL
    std = np.where(std > 0, std, np.sqrt(np.mean(residual**2, axis=0)))  # more than half of the residuals may be zero
    return np.clip(residual, -MAX_RESIDUAL * std, MAX_RESIDUAL * std)


def _spread(outputs: np.ndarray, weights: Array) -> np.ndarray:
    """Return the variance between members at each row, (rows, outputs), from `outputs`, (members, rows, outputs).

    Three members tell little of it, so that the average over rows with `weights`, (rows, 1), enters too.
    """
    spread = outputs.var(axis=0, ddof=1)
    largest = np.quantile(spread, MAX_SPREAD_QUANTILE, axis=0, method="lower")  # below that of one odd row of a few
    average = weighted_mean(np.minimum(spread, largest), weights)
    own = len(outputs) - 1
    return (own * spread + AVERAGE_SPREAD_WEIGHT * average) / (own + AVERAGE_SPREAD_WEIGHT)


def _noise_model(pilots: Pilots, residual: np.ndarray, mean_square: np.ndarray) -> tuple[np.ndarray, MemberPosterior]:
    """Fit an anchored ensemble, one member per fold, that predicts the variance of the residuals as a function of x.

    `residual` has the shape (rows, outputs), and `mean_square`, its mean square, (outputs,). Returns the out-of-fold
    log of the variance relative to `mean_square`, (rows, outputs), and the ensemble.
    """
    data, n_outputs = pilots.data, residual.shape[1]
    network = MLP((50,), n_outputs)
    params = network.init(pilots.key, data.inputs[:1])
    prior = layered_prior(network, params, default_layer_scales(network, NOISE_PRIOR_SCALE))
    likelihood = CenteredGaussian(np.asarray(mean_square, jnp.result_type(float)))
    model = BayesianModel(network, prior, likelihood)
    fold = pilots.folds(SELECTION_FOLDS)
    n_folds = int(fold.max()) + 1
    lanes = Lanes(FIRST_NOISE_MEMBER + np.arange(n_folds), trees.stack([model] * n_folds), np.arange(n_folds))
    solver = replace(shortened(pilots.solver, NOISE_MODEL_SHARE), optimizer="adam", learning_rate=0.01)
    residuals = data._replace(targets=residual.astype(data.inputs.dtype))
    trained = train(pilots.key, TrainingConfig(solver=solver), lanes, pad_rows(residuals, fold))
    posterior = MemberPosterior(model, trained.params)
    outputs = posterior.outputs(data.inputs)[fold, np.arange(len(fold))]
    return np.asarray(likelihood.log_ratio(outputs)), posterior


# The shape of residuals: families, each with the function that makes a shape, and the parameters to start from


def _skewed_t(log_excess: float = np.inf, log_skewness: float = 0.0) -> Shape:
    """Return a normal (no parameter), Student-t (one) or skewed Student-t (two); the excess is ν minus its minimum."""
    degrees_of_freedom = SHAPE_RANGES["degrees_of_freedom"][0] + np.exp(np.minimum(log_excess, 15.0))
    is_normal = log_excess == np.inf
    return Shape(np.inf if is_normal else float(degrees_of_freedom), _within_range("skewness", np.exp(log_skewness)))


def _mixture(logit_share: float, log_ratio: float, shift: float) -> Shape:
    """Return a mixture of two normals.

    Neither part may be small: outliers are left to Student's t.
    """
    smallest, _ = SHAPE_RANGES["share"]
    share = float(np.clip(special.expit(logit_share), smallest, 1 - smallest))
    return Shape(share=share, ratio=_within_range("ratio", np.exp(log_ratio)), shift=_within_range("shift", shift))


def _within_range(name: str, value: float) -> float:
    """Return `value`, or the nearest one that the field `name` of a Shape may have."""
    return float(np.clip(value, *SHAPE_RANGES[name]))


Family = tuple[Callable[..., Shape], tuple[float, ...]]
SKEWED_TS: list[Family] = [(_skewed_t, ()), (_skewed_t, (1.5,)), (_skewed_t, (1.5, 0.0))]
MIXTURES: list[Family] = [(_mixture, (0.5, 1.0, 0.0)), (_mixture, (0.0, 0.0, 2.0))]  # narrow and wide, or two peaks


def _families(n_values: int) -> list[Family]:
    """Return the families for a target of `n_values` different values: with few, a mixture would fit their spacing."""
    return SKEWED_TS + MIXTURES if n_values >= MIN_VALUES_OF_MIXTURE else SKEWED_TS


@dataclass(frozen=True)
class _ShapeFit:
    """A shape fitted to the residuals of one output."""

    shape: Shape
    factor: float  # of the noise variance
    score: float  # lower is better


def _fit_shapes(
    residual: np.ndarray,
    variance: np.ndarray,
    member_variance: np.ndarray,
    weights: np.ndarray,
    families: list[list[Family]],
) -> list[_ShapeFit]:
    """Fit a shape and a factor of the noise variance to the residuals of each output.

    Residuals, noise variances and `member_variance`, the (1 + 1/m) v of `estimate`, are (rows, outputs); `weights` are
    (rows, 1), and `families` those to choose from, for each output.
    """
    w = weights[:, 0] / weights.sum()
    n_effective = 1 / np.sum(w**2)
    fits = []
    for r, v, s, offered in zip(residual.T, variance.T, member_variance.T, families, strict=True):
        known = [family for family in offered if n_effective >= ROWS_PER_PARAMETER * len(family[1])]
        candidates = [_fit_shape(r, v, s, w, *family) for family in known]
        fits.append(min(candidates, key=lambda fit: fit.score))
    return fits


def _fit_shape(
    residual: np.ndarray,
    variance: np.ndarray,
    member_variance: np.ndarray,
    weights: np.ndarray,
    make_shape: Callable[..., Shape],
    start: Sequence[float],
) -> _ShapeFit:
    """Fit a shape of one family, and a factor of the noise variance, by maximum likelihood.

    The arrays are (rows,), and `weights` sum to 1. `make_shape` makes a shape from its parameters, which start at
    `start`. The score is the Bayesian information criterion per row.
    """

    def from_parameters(parameters: np.ndarray) -> tuple[Shape, float]:
        return make_shape(*parameters[1:]), float(np.clip(np.exp(parameters[0]), *FACTOR_RANGE))

    def loss(parameters: np.ndarray) -> float:
        shape, factor = from_parameters(parameters)
        total = member_variance + factor * variance
        return float(weights @ (0.5 * np.log(total) - shape.logpdf(residual / np.sqrt(total))))

    first = np.array([-0.5, *start])
    simplex = np.vstack([first, first + SIMPLEX_STEP * np.eye(len(first))])
    options = {"xatol": 1e-3, "fatol": 1e-6, "initial_simplex": simplex}
    parameters = optimize.minimize(loss, first, method="Nelder-Mead", options=options).x
    n_effective = max(1.0, 1 / np.sum(weights**2))
    penalty = 0.5 * np.log(n_effective) * len(parameters) / n_effective
    return _ShapeFit(*from_parameters(parameters), loss(parameters) + penalty)
