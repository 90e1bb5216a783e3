"""Choose what was left to "auto", by how well rows left out are predicted.

Pilot members train with a fold of the rows left out, so that together they predict every row without having
seen it. All candidates share one compiled program with the final fit. What each stage costs, in units of a
fit of ten members:

    noise, then prior scale      7 candidates × 5 folds × 1 member, a fifth of the epochs    ≈ 0.7
    residuals                   10 folds × 2 members, two fifths of the epochs               ≈ 0.8
    noise model                  5 folds × 1 member, a tenth of the epochs                   ≈ 0.05
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import CenteredGaussian
from anchored.model.networks import MLP
from anchored.types import Array, Data, Key, OnProgress

PRIOR_SCALES = (2.0, 1.0, 4.0)  # the first is in force while the noise is chosen
NOISE_VARIANCES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # of standardised targets, as seen by the loss
TEMPERATURES = (1.0, 0.1, 0.01)  # of the likelihood of classes, which has no noise to choose
SELECTION_FOLDS, RESIDUAL_FOLDS = 5, 10
SELECTION_SHARE, RESIDUAL_SHARE, NOISE_MODEL_SHARE = 0.2, 0.4, 0.1  # of the epochs
NOISE_PRIOR_SCALE = 0.7
NOISE_MEMBER = 10**6  # the noise model's members draw from a range of their own
SMALLEST_SHARE = 0.05  # of a residual's square that must be noise, whatever the spread
SMALLEST_VARIANCE = 1e-10  # of standardised targets

Scorer = Callable[[np.ndarray], float]  # out-of-fold outputs (rows, outputs) -> lower is better


@dataclass(frozen=True)
class Pilots:
    """Members that predict the rows they have not seen."""

    key: Key
    config: TrainingConfig
    data: Data
    seed: int

    def folds(self, n_folds: int) -> np.ndarray:
        """A fold for every row, of nearly equal sizes."""
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
        """Each row's outputs by members trained without it, (models, members, rows, outputs)."""
        fold = self.folds(n_folds)
        n_folds = fold.max() + 1
        grid = np.stack(np.meshgrid(range(len(models)), range(n_members), range(n_folds), indexing="ij"))
        model, member, left_out = grid.reshape(3, -1)
        lanes = Lanes(member, trees.take(trees.stack(models), model), left_out)
        config = replace(self.config, solver=shortened(self.config.solver, share))
        trained = train(self.key, config, lanes, pad_rows(self.data, fold), on_progress=on_progress)
        few = [slice(i, i + SELECTION_FOLDS) for i in range(0, len(member), SELECTION_FOLDS)]  # one program serves all
        parts = [MemberPosterior(models[0], trees.take(trained.params, s)).outputs(self.data.inputs) for s in few]
        outputs = np.concatenate(parts)
        outputs = outputs.reshape(*grid.shape[1:], *outputs.shape[1:])
        return outputs[:, :, fold, np.arange(len(fold))]


def prior_scale_candidates(given: Any) -> tuple:
    """The candidates: one scale, or one for each layer, where it is given."""
    if isinstance(given, str):
        return PRIOR_SCALES
    return (float(given),) if np.ndim(given) == 0 else (tuple(float(scale) for scale in given),)


def n_epochs(pilots: Pilots) -> int:
    """How many a stage of choosing runs, for its progress bar."""
    return max(1, round(pilots.config.solver.max_iter * SELECTION_SHARE))


def shortened(solver, share: float):
    """The same solver with a share of the epochs."""
    return replace(solver, max_iter=max(1, round(solver.max_iter * share)), early_stopping=False)


def choose(
    pilots: Pilots,
    make_model: Callable[[float, float], BayesianModel],
    score: Scorer,
    prior_scales: tuple[float, ...],
    noises: tuple[float, ...],
    on_progress: OnProgress | None = None,
) -> tuple[float, float]:
    """The best noise (for classes: temperature) at the first prior scale, then the best prior scale at it."""
    scores: dict[tuple[float, float], float] = {}
    n_stages = (len(noises) > 1) + (len(prior_scales) > 1)

    def part(share: float, loss: float) -> None:
        if on_progress is not None:
            on_progress(share / n_stages, loss)

    def compare(candidates: list[tuple[float, float]]) -> tuple[float, float]:
        new = [c for c in candidates if c not in scores]
        if new and len(candidates) > 1:
            models = [make_model(*candidate) for candidate in new]
            outputs = pilots.out_of_fold(models, SELECTION_FOLDS, SELECTION_SHARE, on_progress=part)
            scores.update({c: score(o[0]) for c, o in zip(new, outputs, strict=True)})
        return min(candidates, key=lambda c: scores.get(c, np.inf))

    _, noise = compare([(prior_scales[0], noise) for noise in noises])
    return compare([(scale, noise) for scale in prior_scales])


def gaussian_score(data: Data) -> Scorer:
    """Held-out negative log-likelihood with each output's noise at its best: ½ log of the squared error."""

    def score(outputs: np.ndarray) -> float:
        squared = (outputs - data.targets) ** 2
        return float(np.mean(np.log(_weighted_mean(squared, data.weights) + SMALLEST_VARIANCE)))

    return score


def categorical_score(data: Data) -> Scorer:
    """Held-out log loss."""

    def score(outputs: np.ndarray) -> float:
        log_p = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        picked = log_p[np.arange(len(log_p)), data.targets]
        return float(-np.average(picked, weights=data.weights[:, 0]))

    return score


def observation_noise(
    pilots: Pilots, model: BayesianModel, force_model: bool, on_progress: OnProgress | None = None
) -> tuple[np.ndarray, MemberPosterior | None]:
    """The noise of an observation, from residuals of rows left out: (outputs,), and its model where it varies.

    A residual of the mean of two members holds noise, the error of the mean, and half the spread between
    members; the spread stands in the predictive once already, so the noise is r² − 1.5 spread. Where it varies
    with x is learnt from the residuals alone (a head trained together with the mean overfits it), and used where
    it predicts rows left out better than a constant does, or where it is forced.
    """
    data = pilots.data
    first, second = pilots.out_of_fold([model], RESIDUAL_FOLDS, RESIDUAL_SHARE, n_members=2, on_progress=on_progress)[0]
    residual = (first + second) / 2 - data.targets
    square = _weighted_mean(residual**2, data.weights) + SMALLEST_VARIANCE
    spread = _weighted_mean((first - second) ** 2 / 2, data.weights)
    noise = np.maximum(square - 1.5 * spread, SMALLEST_SHARE * square)
    gain, posterior = _noise_model(pilots, residual, square)
    if not force_model and gain <= 0:
        return noise, None
    return noise, replace(posterior, model=replace(posterior.model, likelihood=CenteredGaussian(_number(noise))))


def _noise_model(pilots: Pilots, residual: np.ndarray, square: np.ndarray) -> tuple[float, MemberPosterior]:
    """How the residuals' variance depends on x: an anchored ensemble, one member for each fold left out.

    Returns what it gains over a constant on rows left out, in nats a row, and the ensemble.
    """
    data, n_outputs = pilots.data, residual.shape[1]
    network = MLP((50,), n_outputs)
    params = network.init(pilots.key, data.inputs[:1])
    prior = layered_prior(network, params, default_layer_scales(network, NOISE_PRIOR_SCALE))
    likelihood = CenteredGaussian(_number(square))
    model = BayesianModel(network, prior, likelihood)
    fold = pilots.folds(SELECTION_FOLDS)
    n_folds = int(fold.max()) + 1
    lanes = Lanes(NOISE_MEMBER + np.arange(n_folds), trees.stack([model] * n_folds), np.arange(n_folds))
    solver = replace(shortened(pilots.config.solver, NOISE_MODEL_SHARE), optimizer="adam", learning_rate=0.01)
    own = data._replace(targets=residual.astype(data.inputs.dtype))
    trained = train(pilots.key, TrainingConfig(solver=solver), lanes, pad_rows(own, fold))
    posterior = MemberPosterior(model, trained.params)
    log_ratio = likelihood.log_ratio(posterior.outputs(data.inputs)[fold, np.arange(len(fold))])
    relative = residual**2 / square
    gain = 0.5 * (relative - relative * np.exp(-log_ratio) - log_ratio)
    return float(np.mean(_weighted_mean(gain, data.weights))), posterior


def _weighted_mean(values: np.ndarray, weights: Array) -> np.ndarray:
    """The weighted mean over rows, one for each output."""
    return np.average(values, axis=0, weights=np.broadcast_to(weights, values.shape))


def _number(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, jnp.result_type(float))
