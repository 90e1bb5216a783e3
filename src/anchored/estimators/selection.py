"""Choose arguments set to "auto" by cross-validation.

Each pilot member is trained without one fold of the rows, and predicts the rows of that fold. Candidates with the same
encoding of the inputs share one compiled program. The cost of each stage, relative to a fit of ten members on the same
rows:

    encoding and noise, then prior scale   12 candidates × 5 folds × 1 member, a fifth of the epochs   ≈ 1.2
    residuals, see `noise`                 10 folds × 2 members, two fifths of the epochs              ≈ 0.8
    noise model, see `noise`                5 folds × 1 member, a tenth of the epochs                  ≈ 0.05
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from anchored import trees
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Array, Data, Key, OnProgress

PRIOR_SCALES = (2.0, 1.0, 4.0)  # the first is used while the noise is chosen
NOISE_VARIANCES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # of standardised targets, in the training loss
TEMPERATURES = (1.0, 0.1, 0.01)  # of the categorical likelihood, which has no noise variance
SELECTION_FOLDS = 5
SELECTION_SHARE = 0.2  # of the epochs of the fit
SCORE_DEGREES_OF_FREEDOM = 4.0  # of the distribution that scores residuals
SCORE_STEPS = 30
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
        """Return the fold of every row, (rows,), from 0 to `n_folds` − 1; folds have nearly equal sizes.

        Copies of a row are in one fold: a member that has seen one of them would predict the others too well.
        """
        n = len(self.data.weights)
        fold = np.random.default_rng(self.seed).permutation(n) % min(n_folds, n)
        return fold[first_copies(self.data.inputs, self.data.targets)]

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


def first_copies(*columns: Array) -> np.ndarray:
    """Return for every row the position of the first row that equals it in all `columns`, (rows,)."""
    rows = np.concatenate([np.asarray(c, np.float64).reshape(len(c), -1) for c in columns], axis=1)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


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


@dataclass(frozen=True)
class NetworkCandidate:
    """A network with a map of its inputs, to be compared with others."""

    encoding: PiecewiseLinearEncoding | None  # of the inputs
    pilots: Pilots  # with the inputs of this network
    make_model: Callable[..., BayesianModel]  # from a prior scale, and a noise variance or temperature

    @property
    def input_encoding(self) -> str:
        """The name of the encoding."""
        return "standard" if self.encoding is None else "piecewise_linear"


class Candidate(NamedTuple):
    """A candidate, and its score on rows left out."""

    input_encoding: str  # "standard" or "piecewise_linear"
    prior_scale: float | tuple[float, ...]
    noise: float  # noise variance of standardised targets in training; for classes, the temperature
    score: float  # in nats per row, up to a constant; lower is better, and NaN for a single candidate


def choose(
    networks: list[NetworkCandidate],
    score: Scorer,
    prior_scales: tuple[float, ...],
    noises: tuple[float, ...],
    on_progress: OnProgress | None = None,
) -> tuple[NetworkCandidate, list[Candidate]]:
    """Choose a network and a noise variance at the first prior scale, then the prior scale of that pair.

    Parameters
    ----------
    networks : list of NetworkCandidate
        Networks to choose from.
    score : Scorer
        Function that scores the out-of-fold outputs of a candidate; lower is better.
    prior_scales, noises : tuple of float
        Prior scales and noise variances (for classes: temperatures) to choose from.
    on_progress : function or None
        Called with the fraction of the work just done, and the loss.

    Returns
    -------
    network : NetworkCandidate
        The network of the best candidate.
    candidates : list of Candidate
        All candidates, best first; a single one is not trained.
    """
    if len(networks) * len(noises) * len(prior_scales) == 1:
        return networks[0], [Candidate(networks[0].input_encoding, prior_scales[0], noises[0], np.nan)]
    n_stages = len(networks) * (len(networks) * len(noises) > 1) + (len(prior_scales) > 1)

    def on_stage_progress(share: float, loss: float) -> None:
        if on_progress is not None:
            on_progress(share / n_stages, loss)

    def scored(network: NetworkCandidate, settings: list[tuple[float, float]]) -> list[Candidate]:
        """Candidates with this network, and all pairs of a prior scale and a noise variance in `settings`."""
        if not settings:
            return []
        models = [network.make_model(*pair) for pair in settings]
        outputs = network.pilots.out_of_fold(models, SELECTION_FOLDS, SELECTION_SHARE, on_progress=on_stage_progress)
        return [Candidate(network.input_encoding, *s, score(o[0])) for s, o in zip(settings, outputs, strict=True)]

    candidates = [c for network in networks for c in scored(network, [(prior_scales[0], noise) for noise in noises])]
    best = min(candidates, key=lambda candidate: candidate.score)
    network = next(n for n in networks if n.input_encoding == best.input_encoding)
    candidates += scored(network, [(scale, best.noise) for scale in prior_scales[1:]])
    return network, sorted(candidates, key=lambda candidate: candidate.score)


def summary(candidates: list[Candidate]) -> str:
    """Return a sentence that says which of `candidates`, best first, was chosen, and by how much."""
    best = candidates[0]
    chosen = f"chosen: {best.input_encoding} inputs, prior scale {best.prior_scale}, noise {best.noise:g}"
    others = [c for c in candidates if c.input_encoding != best.input_encoding]
    if not others:
        return chosen
    gain = others[0].score - best.score
    return f"{chosen}; {others[0].input_encoding} inputs score {gain:.3f} nats a row worse on rows left out"


def residual_score(data: Data) -> Scorer:
    """Return a scorer that computes the mean negative log-likelihood of residuals on `data`, averaged over outputs.

    Their distribution is Student's t with SCORE_DEGREES_OF_FREEDOM and the scale that fits best, so that a few wrong
    targets do not decide.
    """
    nu = SCORE_DEGREES_OF_FREEDOM

    def score(outputs: np.ndarray) -> float:
        squared = np.asarray(outputs - data.targets, np.float64) ** 2
        variance = weighted_mean(squared, data.weights) + MIN_VARIANCE
        for _ in range(SCORE_STEPS):  # of the EM algorithm for the scale
            row_weights = data.weights * (nu + 1) / (nu + squared / variance)
            variance = weighted_mean(squared * row_weights / data.weights, data.weights) + MIN_VARIANCE
        terms = 0.5 * np.log(variance) + 0.5 * (nu + 1) * np.log1p(squared / (nu * variance))
        return float(np.mean(weighted_mean(terms, data.weights)))

    return score


def categorical_score(data: Data) -> Scorer:
    """Return a scorer that computes the log loss on `data`, in nats per row."""

    def score(outputs: np.ndarray) -> float:
        log_p = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        log_p_of_targets = log_p[np.arange(len(log_p)), data.targets]
        return float(-np.average(log_p_of_targets, weights=data.weights[:, 0]))

    return score


def weighted_mean(values: np.ndarray, weights: Array) -> np.ndarray:
    """Return the mean of `values`, (rows, outputs), over rows with `weights`, (rows, 1)."""
    return np.average(values, axis=0, weights=np.broadcast_to(weights, values.shape))
