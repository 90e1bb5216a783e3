"""Estimate the distribution of observations about the ensemble's mean, from residuals on held-out rows.

Every step is robust: a few outliers, in X or in y, hardly change the intervals of other rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from anchored import trees
from anchored.estimators.selection import MIN_VARIANCE, SELECTION_FOLDS, PilotTrainer, shortened, weighted_mean
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import CenteredGaussian
from anchored.model.networks import MLP
from anchored.model.predictive import SHAPE_RANGES, Shape
from anchored.types import Array, OnProgress

# Pilot members whose residuals are computed
RESIDUAL_FOLDS = 10
MAX_ROWS_OF_ALL_FOLDS = 2_000  # for more rows, only half of the folds are held out in turn
MEMBERS_PER_FOLD = 3
RESIDUAL_FRACTION = 0.8  # they are trained for this fraction of the epochs of the fit

MAX_RESIDUAL = 10.0  # residuals are clipped at this many robust standard deviations
MEDIAN_OF_NORMAL = 0.6745  # median of |z| for a standard normal z
AVERAGE_WEIGHT = 2.0  # weight, in degrees of freedom, of the average over rows in the variance between members
MAX_VARIANCE_QUANTILE = 0.98  # variances between members are clipped at this quantile before they are averaged

# The noise model: an ensemble that predicts how the noise varies with x
NOISE_MODEL_FRACTION = 0.1  # its members are trained for this fraction of the epochs of the fit
NOISE_PRIOR_SCALE = 1.5
FIRST_NOISE_MEMBER = 10**6  # number of the noise model's first member; other members have smaller numbers

# The shape of the predictive distribution
MAX_SHAPE_ROWS = 10_000  # the shape is fitted to a random subset of larger data sets
ROWS_PER_PARAMETER = 15  # a family of shapes is tried only if there are this many rows for each of its parameters
MIN_VALUES_OF_MIXTURE = 20  # mixtures are tried only if a target has this many different values
MIXTURE_PENALTY = 15.0  # nats over all rows by which a mixture must fit better, since its light tails exclude outliers
SIMPLEX_STEP = 0.5  # size of the first simplex of the Nelder–Mead method
FACTOR_RANGE = 0.05, 150.0  # range of the factor by which noise variances are multiplied when a shape is fitted


@dataclass(frozen=True)
class ObservationNoise:
    """The distribution of observations about the ensemble's mean. Variances are relative to the variance of y.

    The predictive distribution has the given shape, and its variance is the variance between members plus the noise
    variance.
    """

    variance: np.ndarray  # (outputs,), the noise variance; its average if it varies with x
    model: MemberPosterior | None  # predicts how the noise varies with x; None if it is constant
    shape: Shape  # shape of the predictive distribution


def estimate(
    trainer: PilotTrainer,
    model: BayesianModel,
    force_model: bool,
    on_progress: OnProgress | None = None,
) -> ObservationNoise:
    """Estimate the observation noise from out-of-fold residuals.

    Let r be the residual of the mean of m members at a held-out row, and v the variance between members there. About
    the posterior mean, the observation has the variance v plus the noise variance, and the mean of m members has the
    variance v/m. The variance of r is therefore (1 + 1/m) v plus the noise variance. The noise variance is chosen to
    explain the residuals best. Rows where members disagree much have little influence on it.

    The noise model, which predicts how the noise varies with x, is fitted to the residuals alone, because a variance
    output that is trained together with the mean overfits. The shape of the predictive distribution is fitted last,
    together with a factor of the noise variance.

    Parameters
    ----------
    trainer : PilotTrainer
        Trains pilot members, each of which predicts the rows that it was not trained on.
    model : BayesianModel
        The model that is to be fitted.
    force_model : bool
        Whether the noise must vary with x, even if a constant variance predicts held-out residuals better.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    ObservationNoise
        The estimate.
    """
    n_left_out = RESIDUAL_FOLDS if len(trainer.data.weights) <= MAX_ROWS_OF_ALL_FOLDS else RESIDUAL_FOLDS // 2
    outputs = trainer.out_of_fold([model], RESIDUAL_FOLDS, RESIDUAL_FRACTION, MEMBERS_PER_FOLD, n_left_out, on_progress)
    outputs = outputs[0].astype(np.float64)
    data = trees.take(trainer.data, np.flatnonzero(trainer.folds(RESIDUAL_FOLDS) < n_left_out))
    residual = _clipped(np.asarray(data.targets) - outputs.mean(axis=0))
    mean_square = weighted_mean(residual**2, data.weights) + MIN_VARIANCE
    member_variance = (1 + 1 / MEMBERS_PER_FOLD) * _variance_between_members(outputs, data.weights)

    log_ratio, posterior = _fit_noise_model(replace(trainer, data=data), residual, mean_square)
    rows = np.random.default_rng(trainer.seed).permutation(np.flatnonzero(data.weights[:, 0] > 0))[:MAX_SHAPE_ROWS]
    residual, member_variance = residual[rows], member_variance[rows]
    weights = np.asarray(data.weights, np.float64)[rows]
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
    """Return residuals, (rows, outputs), clipped at MAX_RESIDUAL robust standard deviations of their output."""
    std = np.median(np.abs(residual), axis=0) / MEDIAN_OF_NORMAL
    std = np.where(std > 0, std, np.sqrt(np.mean(residual**2, axis=0)))  # the median may be zero
    return np.clip(residual, -MAX_RESIDUAL * std, MAX_RESIDUAL * std)


def _variance_between_members(outputs: np.ndarray, weights: Array) -> np.ndarray:
    """Return an estimate of the variance between members at each row, (rows, outputs).

    The sample variance of a few members is imprecise, so it is shrunk towards the average over rows.

    Parameters
    ----------
    outputs : (members, rows, outputs)
        Outputs of the members.
    weights : (rows, 1)
        Weights of the rows in the average.
    """
    variance = outputs.var(axis=0, ddof=1)
    # method="lower" keeps the quantile below an outlier, even if there are few rows
    largest = np.quantile(variance, MAX_VARIANCE_QUANTILE, axis=0, method="lower")
    average = weighted_mean(np.minimum(variance, largest), weights)
    degrees_of_freedom = len(outputs) - 1
    return (degrees_of_freedom * variance + AVERAGE_WEIGHT * average) / (degrees_of_freedom + AVERAGE_WEIGHT)


def _fit_noise_model(
    trainer: PilotTrainer, residual: np.ndarray, mean_square: np.ndarray
) -> tuple[np.ndarray, MemberPosterior]:
    """Fit an anchored ensemble that predicts how the variance of the residuals varies with x.

    It has one member per fold, trained without that fold.

    Parameters
    ----------
    trainer : PilotTrainer
        Trains the ensemble. Its data must be the rows of the residuals.
    residual : (rows, outputs)
        Residuals of standardised targets.
    mean_square : (outputs,)
        Mean square of the residuals.

    Returns
    -------
    log_ratio : (rows, outputs)
        Logarithm of the predicted variance, relative to `mean_square`, from the member trained without the row's fold.
    posterior : MemberPosterior
        The ensemble.
    """
    data, n_outputs = trainer.data, residual.shape[1]
    network = MLP((50,), n_outputs)
    params = network.init(trainer.key, data.inputs[:1])
    prior = layered_prior(network, params, default_layer_scales(network, NOISE_PRIOR_SCALE))
    likelihood = CenteredGaussian(np.asarray(mean_square, jnp.result_type(float)))
    model = BayesianModel(network, prior, likelihood)
    fold = trainer.folds(SELECTION_FOLDS)
    n_folds = int(fold.max()) + 1
    lanes = Lanes(FIRST_NOISE_MEMBER + np.arange(n_folds), trees.stack([model] * n_folds), np.arange(n_folds))
    solver = replace(shortened(trainer.solver, NOISE_MODEL_FRACTION), optimizer="adam", learning_rate=0.01)
    residuals = data._replace(targets=residual.astype(data.inputs.dtype))
    trained = train(trainer.key, TrainingConfig(solver=solver), lanes, pad_rows(residuals, fold))
    posterior = MemberPosterior(model, trained.params)
    outputs = posterior.outputs(data.inputs)[fold, np.arange(len(fold))]
    return np.asarray(likelihood.log_ratio(outputs)), posterior


# Families of shapes: functions that make a shape from unbounded parameters, to which an optimiser sets no limits


def _skewed_t(log_excess: float = np.inf, log_skewness: float = 0.0) -> Shape:
    """Return a normal distribution (without arguments), Student's t (one argument) or a skewed t (two arguments).

    `log_excess` is the logarithm of the degrees of freedom minus their lower limit.
    """
    degrees_of_freedom = SHAPE_RANGES["degrees_of_freedom"][0] + np.exp(np.minimum(log_excess, 15.0))
    is_normal = log_excess == np.inf
    return Shape(np.inf if is_normal else float(degrees_of_freedom), _within_range("skewness", np.exp(log_skewness)))


def _mixture(logit_share: float, log_ratio: float, shift: float) -> Shape:
    """Return a mixture of two normals: `share` of the first, and `ratio` and `shift` of the second (see `Shape`).

    Neither share may be small: Student's t, not a mixture, is meant for outliers.
    """
    smallest, _ = SHAPE_RANGES["share"]
    share = float(np.clip(special.expit(logit_share), smallest, 1 - smallest))
    return Shape(share=share, ratio=_within_range("ratio", np.exp(log_ratio)), shift=_within_range("shift", shift))


def _within_range(name: str, value: float) -> float:
    """Return `value`, or the nearest one that the field `name` of a Shape may have."""
    return float(np.clip(value, *SHAPE_RANGES[name]))


Family = tuple[Callable[..., Shape], tuple[float, ...]]  # makes a shape from parameters, and their initial values
SKEWED_TS: list[Family] = [(_skewed_t, ()), (_skewed_t, (1.5,)), (_skewed_t, (1.5, 0.0))]
MIXTURES: list[Family] = [
    (_mixture, (0.5, 1.0, 0.0)),  # a narrow and a wide normal
    (_mixture, (0.0, 0.0, 2.0)),  # two peaks
]


def _families(n_values: int) -> list[Family]:
    """Return the families to try for a target with `n_values` different values.

    If there are few values, a mixture would fit the gaps between them.
    """
    return SKEWED_TS + MIXTURES if n_values >= MIN_VALUES_OF_MIXTURE else SKEWED_TS


@dataclass(frozen=True)
class _ShapeFit:
    """A shape fitted to the residuals of one output."""

    shape: Shape
    factor: float  # factor by which the noise variance is multiplied
    score: float  # Akaike's information criterion per row, in nats; lower is better


def _fit_shapes(
    residual: np.ndarray,
    variance: np.ndarray,
    member_variance: np.ndarray,
    weights: np.ndarray,
    families: list[list[Family]],
) -> list[_ShapeFit]:
    """Fit a shape, and a factor of the noise variance, to the residuals of each output.

    Parameters
    ----------
    residual : (rows, outputs)
        Residuals.
    variance : (rows, outputs)
        Noise variances, before they are multiplied by the factor.
    member_variance : (rows, outputs)
        The term (1 + 1/m) v of `estimate`.
    weights : (rows, 1)
        Weights of the rows.
    families : list
        For each output, the families to choose from.

    Returns
    -------
    list of _ShapeFit
        The best fit for each output.
    """
    row_weights = weights[:, 0] / weights.sum()
    n_effective = 1 / np.sum(row_weights**2)
    fits = []
    for i, families_of_output in enumerate(families):
        arrays = residual[:, i], variance[:, i], member_variance[:, i], row_weights
        tried = [family for family in families_of_output if n_effective >= ROWS_PER_PARAMETER * len(family[1])]
        fits.append(min((_fit_shape(*arrays, *family) for family in tried), key=lambda fit: fit.score))
    return fits


def _fit_shape(
    residual: np.ndarray,
    variance: np.ndarray,
    member_variance: np.ndarray,
    weights: np.ndarray,
    make_shape: Callable[..., Shape],
    initial: Sequence[float],
) -> _ShapeFit:
    """Fit a shape of one family, and a factor of the noise variance, by maximum likelihood.

    Parameters
    ----------
    residual, variance, member_variance : (rows,)
        As in `_fit_shapes`, for one output.
    weights : (rows,)
        Weights of the rows, whose sum is 1.
    make_shape : function
        Makes a shape from its parameters.
    initial : sequence of float
        Initial values of the parameters.
    """

    def from_parameters(parameters: np.ndarray) -> tuple[Shape, float]:
        return make_shape(*parameters[1:]), float(np.clip(np.exp(parameters[0]), *FACTOR_RANGE))

    def loss(parameters: np.ndarray) -> float:
        shape, factor = from_parameters(parameters)
        total = member_variance + factor * variance
        return float(weights @ (0.5 * np.log(total) - shape.logpdf(residual / np.sqrt(total))))

    first = np.array([-0.5, *initial])
    simplex = np.vstack([first, first + SIMPLEX_STEP * np.eye(len(first))])
    options = {"xatol": 1e-3, "fatol": 1e-6, "initial_simplex": simplex}
    parameters = optimize.minimize(loss, first, method="Nelder-Mead", options=options).x
    n_effective = max(1.0, 1 / np.sum(weights**2))
    penalty = len(parameters) + (MIXTURE_PENALTY if make_shape is _mixture else 0.0)
    return _ShapeFit(*from_parameters(parameters), loss(parameters) + penalty / n_effective)
