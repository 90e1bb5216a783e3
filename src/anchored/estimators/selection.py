"""Pilot members, which choose arguments set to "auto" by cross-validation.

Each pilot member is trained without one fold of the rows, and predicts the rows of that fold. Candidates with the same
encoding of the inputs share one compiled program. The cost of each stage, relative to a fit of ten members on the same
rows (that of residuals is half as large for more than 2,000 rows), for two networks of which one or both remain:

    first round, see `candidates`    2 × 5 candidates × 5 folds × 1 member, a fifth of the epochs           1.0
    second round                     1 or 2 × 8 candidates × 5 folds × 1 member, a fifth of the epochs      0.8 or 1.6
    last round                       0 or 2 candidates × 5 folds × 1 member, four fifths of the epochs      0 or 0.8
    residuals, see `noise`           10 folds × 3 members, four fifths of the epochs                        2.4
    noise model, see `noise`         5 folds × 1 member, a tenth of the epochs                              0.05
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anchored import trees
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Array, Data, Key, OnProgress

NOISE_VARIANCES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # of standardised targets, in the training loss
TEMPERATURES = (1.0, 0.1, 0.01)  # of the categorical likelihood, which has no noise variance
SELECTION_FOLDS = 5
MEMBERS_PER_PREDICTION = 5  # members predict in groups of this size, which share one compiled program
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

    def n_epochs(self, share: float) -> int:
        """Return the number of epochs that is this `share` of those of the fit, at least 1."""
        return shortened(self.solver, share).max_iter

    def folds(self, n_folds: int) -> np.ndarray:
        """Return the fold of every row, (rows,), from 0 to `n_folds` − 1.

        Folds have nearly equal sizes, if there are no copies. Copies of a row are in one fold: a member that has seen
        one of them would predict the others too well.
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
        n_left_out: int | None = None,
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
        n_left_out : int or None
            Number of folds that are left out in turn; None for all. Only rows of these folds are predicted.
        on_progress : function or None
            Called with the fraction of the work done since the last call, and the loss.

        Returns
        -------
        (models, members, rows, outputs)
            For each row that is predicted, the outputs of the members that were trained without its fold.
        """
        fold = self.folds(n_folds)
        n_left_out = min(fold.max() + 1, n_left_out or n_folds)
        grid = np.stack(np.meshgrid(range(len(models)), range(n_members), range(n_left_out), indexing="ij"))
        model_index, member, left_out = grid.reshape(3, -1)
        lanes = Lanes(member, trees.take(trees.stack(models), model_index), left_out)
        config = replace(self.config, solver=shortened(self.solver, share))
        trained = train(self.key, config, lanes, pad_rows(self.data, fold), on_progress=on_progress)
        slices = [slice(i, i + MEMBERS_PER_PREDICTION) for i in range(0, len(member), MEMBERS_PER_PREDICTION)]
        is_predicted = fold < n_left_out
        inputs = self.data.inputs[is_predicted]
        # Outputs depend only on the network, which all models share
        parts = [MemberPosterior(models[0], trees.take(trained.params, s)).outputs(inputs) for s in slices]
        outputs = np.concatenate(parts)
        outputs = outputs.reshape(*grid.shape[1:], *outputs.shape[1:])  # (models, members, folds, rows, outputs)
        return outputs[:, :, fold[is_predicted], np.arange(len(inputs))]


def first_copies(*columns: Array) -> np.ndarray:
    """Return for every row the position of the first row that equals it in all `columns`, (rows,)."""
    rows = np.concatenate([np.asarray(c, np.float64).reshape(len(c), -1) for c in columns], axis=1)
    _, first, group = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[group.reshape(-1)]


def shortened(solver: FirstOrder, share: float) -> FirstOrder:
    """Return `solver` with `max_iter` multiplied by `share`, and without early stopping."""
    return replace(solver, max_iter=max(1, round(solver.max_iter * share)), early_stopping=False)


def residual_scorer(data: Data) -> Scorer:
    """Return a scorer that computes the mean negative log-likelihood of residuals on `data`, up to a constant.

    It is averaged over outputs. The distribution of residuals is Student's t with SCORE_DEGREES_OF_FREEDOM and the
    scale that fits best, so that a few wrong targets do not decide.
    """
    nu = SCORE_DEGREES_OF_FREEDOM

    def score(outputs: np.ndarray) -> float:
        squared = np.asarray(outputs - data.targets, np.float64) ** 2
        variance = weighted_mean(squared, data.weights) + MIN_VARIANCE
        for _ in range(SCORE_STEPS):  # of the EM algorithm for the scale
            factor = (nu + 1) / (nu + squared / variance)
            variance = weighted_mean(factor * squared, data.weights) + MIN_VARIANCE
        terms = 0.5 * np.log(variance) + 0.5 * (nu + 1) * np.log1p(squared / (nu * variance))
        return float(np.mean(weighted_mean(terms, data.weights)))

    return score


def categorical_scorer(data: Data) -> Scorer:
    """Return a scorer that computes the log loss on `data`, in nats per row."""

    def score(outputs: np.ndarray) -> float:
        log_p = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        log_p_of_targets = log_p[np.arange(len(log_p)), data.targets]
        return float(-np.average(log_p_of_targets, weights=data.weights[:, 0]))

    return score


def weighted_mean(values: np.ndarray, weights: Array) -> np.ndarray:
    """Return the mean of `values`, (rows, outputs), over rows with `weights`, (rows, 1)."""
    return np.average(values, axis=0, weights=np.broadcast_to(weights, values.shape))
