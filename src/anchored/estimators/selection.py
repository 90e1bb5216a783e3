"""Choose arguments set to "auto" by cross-validation.

Each pilot member is trained without one fold of the rows, and predicts the rows of that fold. All candidates share one
compiled program. The cost of each stage, relative to a fit of ten members:

    noise, then prior scale      7 candidates × 5 folds × 1 member, a fifth of the epochs    ≈ 0.7
    residuals                   10 folds × 2 members, two fifths of the epochs               ≈ 0.8
    noise model                  5 folds × 1 member, a tenth of the epochs                   ≈ 0.05
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import CenteredGaussian
from anchored.model.networks import MLP
from anchored.types import Array, Data, Key, OnProgress

PRIOR_SCALES = (2.0, 1.0, 4.0)  # the first is used while the noise is chosen
NOISE_VARIANCES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # of standardised targets, in the training loss
TEMPERATURES = (1.0, 0.1, 0.01)  # of the categorical likelihood, which has no noise variance
SELECTION_FOLDS, RESIDUAL_FOLDS = 5, 10
SELECTION_SHARE, RESIDUAL_SHARE, NOISE_MODEL_SHARE = 0.2, 0.4, 0.1  # shares of the epochs of the fit
NOISE_PRIOR_SCALE = 0.7  # prior scale of the noise model
FIRST_NOISE_MEMBER = 10**6  # index of the noise model's first member, larger than that of any other member
MIN_NOISE_SHARE = 0.05  # smallest fraction of the mean squared residual that counts as noise
MIN_VARIANCE = 1e-10  # added to variances of standardised targets, so that their logarithm is finite

Scorer = Callable[[np.ndarray], float]  # out-of-fold outputs (rows, outputs) -> score; lower is better


@dataclass(frozen=True)
class Pilots:
    """Pilot members: each is trained without one fold of the data, and predicts the rows of that fold.

    Attributes
    ----------
    key : Key
        Random key of the members.
    config : TrainingConfig
        How members of the fit are trained; pilot members are trained for fewer epochs.
    data : Data
        Standardised training data.
    seed : int
        Random seed of the folds.
    """

    key: Key
    config: TrainingConfig
    data: Data
    seed: int

    @property
    def solver(self) -> FirstOrder:
        """The solver of the fit."""
        assert isinstance(self.config.solver, FirstOrder)
        return self.config.solver

    def folds(self, n_folds: int) -> np.ndarray:
        """Return the fold of every row, (rows,), from 0 to `n_folds` − 1; folds have nearly equal sizes."""
        n = len(self.data.weights)
        return np.random.default_rng(self.seed).permutation(n) % min(n_folds, n)

    def out_of_fold(
        self,
        models: list[BayesianModel],
        n_folds: int,
        share: float,
        n_members: int = 1,
        on_progress: OnProgress | None = None,
    ) -> np.ndarray:
        """Return each row's outputs from members trained without its fold.

        Parameters
        ----------
        models : list of BayesianModel
            The candidates.
        n_folds : int
            Number of cross-validation folds.
        share : float
            Number of epochs, as a fraction of those of the fit.
        n_members : int
            Members per model and fold.
        on_progress : function or None
            Called with the fraction of the work just done, and the loss.

        Returns
        -------
        (models, members, rows, outputs)
            For each row, the outputs of the members that were trained without its fold.
        """
        fold = self.folds(n_folds)
        n_folds = fold.max() + 1
        grid = np.stack(np.meshgrid(range(len(models)), range(n_members), range(n_folds), indexing="ij"))
        model, member, left_out = grid.reshape(3, -1)
        lanes = Lanes(member, trees.take(trees.stack(models), model), left_out)
        config = replace(self.config, solver=shortened(self.solver, share))
        trained = train(self.key, config, lanes, pad_rows(self.data, fold), on_progress=on_progress)
        # Members predict in groups of the same size, which share one compiled program
        slices = [slice(i, i + SELECTION_FOLDS) for i in range(0, len(member), SELECTION_FOLDS)]
        parts = [MemberPosterior(models[0], trees.take(trained.params, s)).outputs(self.data.inputs) for s in slices]
        outputs = np.concatenate(parts)
        outputs = outputs.reshape(*grid.shape[1:], *outputs.shape[1:])
        return outputs[:, :, fold, np.arange(len(fold))]


def prior_scale_candidates(given: str | float | Sequence[float]) -> tuple:
    """Return the prior scales to choose from: PRIOR_SCALES for "auto", else only the given number or tuple."""
    if isinstance(given, str):
        return PRIOR_SCALES
    scales = tuple(float(scale) for scale in np.atleast_1d(given))
    return scales if np.ndim(given) == 0 else (scales,)


def n_epochs(pilots: Pilots) -> int:
    """Return the length of the progress bars: the epochs that `pilots` train for in one stage of `choose`."""
    return max(1, round(pilots.solver.max_iter * SELECTION_SHARE))


def shortened(solver: FirstOrder, share: float) -> FirstOrder:
    """Return `solver` with `max_iter` multiplied by `share`, between 0 and 1, and without early stopping."""
    return replace(solver, max_iter=max(1, round(solver.max_iter * share)), early_stopping=False)


def choose(
    pilots: Pilots,
    make_model: Callable[[float, float], BayesianModel],
    score: Scorer,
    prior_scales: tuple[float, ...],
    noises: tuple[float, ...],
    on_progress: OnProgress | None = None,
) -> tuple[float, float]:
    """Choose the best noise variance at the first prior scale, then the best prior scale at that noise variance.

    Parameters
    ----------
    pilots : Pilots
        Members that score the candidates.
    make_model : function
        Makes a model from a prior scale and a noise variance (for classes: a temperature).
    score : Scorer
        Function that scores the out-of-fold outputs of a candidate; lower is better.
    prior_scales, noises : tuple of float
        Candidates; a single one is chosen without training.
    on_progress : function or None
        Called with the fraction of the work just done, and the loss.

    Returns
    -------
    prior_scale, noise : float
        The best prior scale, and the best noise variance or temperature.
    """
    scores: dict[tuple[float, float], float] = {}
    n_stages = (len(noises) > 1) + (len(prior_scales) > 1)

    def on_stage_progress(share: float, loss: float) -> None:
        if on_progress is not None:
            on_progress(share / n_stages, loss)

    def best_of(candidates: list[tuple[float, float]]) -> tuple[float, float]:
        unscored = [c for c in candidates if c not in scores]
        if unscored and len(candidates) > 1:
            models = [make_model(*candidate) for candidate in unscored]
            outputs = pilots.out_of_fold(models, SELECTION_FOLDS, SELECTION_SHARE, on_progress=on_stage_progress)
            scores.update({c: score(o[0]) for c, o in zip(unscored, outputs, strict=True)})
        return min(candidates, key=lambda c: scores.get(c, np.inf))

    _, noise = best_of([(prior_scales[0], noise) for noise in noises])
    return best_of([(scale, noise) for scale in prior_scales])


def gaussian_score(data: Data) -> Scorer:
    """Return a scorer that computes the log of the mean squared error on `data`, averaged over outputs.

    Up to a constant, this is twice the mean negative log-likelihood at the best noise variance of each output.
    """

    def score(outputs: np.ndarray) -> float:
        squared = (outputs - data.targets) ** 2
        return float(np.mean(np.log(_weighted_mean(squared, data.weights) + MIN_VARIANCE)))

    return score


def categorical_score(data: Data) -> Scorer:
    """Return a scorer that computes the log loss on `data`, in nats per row."""

    def score(outputs: np.ndarray) -> float:
        log_p = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        log_p_of_targets = log_p[np.arange(len(log_p)), data.targets]
        return float(-np.average(log_p_of_targets, weights=data.weights[:, 0]))

    return score


def observation_noise(
    pilots: Pilots, model: BayesianModel, force_model: bool, on_progress: OnProgress | None = None
) -> tuple[np.ndarray, MemberPosterior | None]:
    """Estimate the variance of the observation noise from out-of-fold residuals.

    Let r be the residual of the mean of two members, and v the variance between members. This mean varies around the
    posterior mean with the variance v/2, so the mean squared residual of the posterior mean is r² − v/2. The predictive
    variance, which is the noise variance plus v, should be equal to it; the noise variance is therefore r² − 1.5 v.

    The noise model, which predicts how the noise varies with x, is fitted to the residuals alone, because a variance
    output that is trained together with the mean overfits.

    Parameters
    ----------
    pilots : Pilots
        Members that predict the rows they were not trained on.
    model : BayesianModel
        The model of the fit.
    force_model : bool
        Whether to return the noise model even if a constant variance predicts held-out residuals better.
    on_progress : function or None
        Called with the fraction of the work just done, and the loss.

    Returns
    -------
    noise : (outputs,)
        Variance of the noise, relative to the variance of y.
    noise_model : MemberPosterior or None
        Predicts how the variance varies with x; None if the variance is constant.
    """
    data = pilots.data
    first, second = pilots.out_of_fold([model], RESIDUAL_FOLDS, RESIDUAL_SHARE, n_members=2, on_progress=on_progress)[0]
    residual = (first + second) / 2 - data.targets
    mean_square = _weighted_mean(residual**2, data.weights) + MIN_VARIANCE
    variance_between = _weighted_mean((first - second) ** 2 / 2, data.weights)
    noise = np.maximum(mean_square - 1.5 * variance_between, MIN_NOISE_SHARE * mean_square)
    gain, posterior = _noise_model(pilots, residual, mean_square)
    if not force_model and gain <= 0:
        return noise, None
    model = replace(posterior.model, likelihood=CenteredGaussian(_in_default_precision(noise)))
    return noise, replace(posterior, model=model)


def _noise_model(pilots: Pilots, residual: np.ndarray, mean_square: np.ndarray) -> tuple[float, MemberPosterior]:
    """Fit an anchored ensemble, one member per fold, that predicts the variance of the residuals as a function of x.

    `residual` has the shape (rows, outputs), and `mean_square`, its mean square, (outputs,). Returns the gain in
    log-likelihood on held-out rows over a constant variance, in nats per row, and the ensemble.
    """
    data, n_outputs = pilots.data, residual.shape[1]
    network = MLP((50,), n_outputs)
    params = network.init(pilots.key, data.inputs[:1])
    prior = layered_prior(network, params, default_layer_scales(network, NOISE_PRIOR_SCALE))
    likelihood = CenteredGaussian(_in_default_precision(mean_square))
    model = BayesianModel(network, prior, likelihood)
    fold = pilots.folds(SELECTION_FOLDS)
    n_folds = int(fold.max()) + 1
    lanes = Lanes(FIRST_NOISE_MEMBER + np.arange(n_folds), trees.stack([model] * n_folds), np.arange(n_folds))
    solver = replace(shortened(pilots.solver, NOISE_MODEL_SHARE), optimizer="adam", learning_rate=0.01)
    residuals = data._replace(targets=residual.astype(data.inputs.dtype))
    trained = train(pilots.key, TrainingConfig(solver=solver), lanes, pad_rows(residuals, fold))
    posterior = MemberPosterior(model, trained.params)
    log_ratio = likelihood.log_ratio(posterior.outputs(data.inputs)[fold, np.arange(len(fold))])
    relative_square = residual**2 / mean_square
    gain = 0.5 * (relative_square - relative_square * np.exp(-log_ratio) - log_ratio)
    return float(np.mean(_weighted_mean(gain, data.weights))), posterior


def _weighted_mean(values: np.ndarray, weights: Array) -> np.ndarray:
    """Return the mean of `values`, (rows, outputs), over rows with `weights`, (rows, 1)."""
    return np.average(values, axis=0, weights=np.broadcast_to(weights, values.shape))


def _in_default_precision(values: np.ndarray) -> np.ndarray:
    """Return `values` in JAX's default floating-point type."""
    return np.asarray(values, jnp.result_type(float))
