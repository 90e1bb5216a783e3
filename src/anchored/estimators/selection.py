"""Pilot members, with which arguments set to "auto" are chosen by cross-validation.

A pilot member is trained without one fold of the rows, for fewer epochs than members of the final fit, and predicts the
rows of that fold. Candidates with the same encoding of the inputs share one compiled program.

The table shows the cost of each stage for a regressor with two networks to choose from, on data with noise. The unit is
the cost of a fit of ten members on the same rows. The cost of the residuals is half as large for more than 2,000 rows.
On data with hardly any noise, more candidates are compared (see `candidates`).

    first round, see `candidates`    2 × 5 candidates × 5 folds × 1 member, a fifth of the epochs    1.0
    second round                     2 candidates × 5 folds × 1 member, a fifth of the epochs        0.2
    residuals, see `noise`           10 folds × 3 members, four fifths of the epochs                 2.4
    noise model, see `noise`         5 folds × 1 member, a tenth of the epochs                       0.05
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anchored import trees
from anchored.inference import splits
from anchored.inference.lanes import Lanes, pad_rows
from anchored.inference.posterior import MemberPosterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig, train
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Array, Data, Key, OnProgress

NOISE_VARIANCES = (1.0, 0.1, 0.01, 0.001, 0.0001)  # candidates for a regressor; targets are standardised
TEMPERATURES = (1.0, 0.1, 0.01)  # candidates for a classifier
SELECTION_FOLDS = 5
MEMBERS_PER_PREDICTION = 5  # members predict in groups of this size, which share one compiled program
SCORE_DEGREES_OF_FREEDOM = 4.0  # of the Student-t distribution with which residuals are scored
SCORE_STEPS = 30  # steps of the EM algorithm that fits the scale of this distribution
MIN_VARIANCE = 1e-10  # added to variances of standardised targets, so that their logarithms are finite

Scorer = Callable[[np.ndarray], float]  # out-of-fold outputs (rows, outputs) -> score; lower is better


@dataclass(frozen=True)
class PilotTrainer:
    """Trains pilot members, each without one fold of the data, and predicts the rows of that fold with them.

    Attributes
    ----------
    key : Key
        Random key of the members.
    config : TrainingConfig
        How members of the final fit are trained; pilot members are trained for fewer epochs.
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
        """The solver of the final fit."""
        assert isinstance(self.config.solver, FirstOrder)
        return self.config.solver

    def n_epochs(self, fraction: float) -> int:
        """Return this `fraction` of the number of epochs of the fit, rounded, but at least 1."""
        return shortened(self.solver, fraction).max_iter

    def folds(self, n_folds: int) -> np.ndarray:
        """Return the fold of every row, (rows,), from 0 to `n_folds` − 1.

        Copies of a row are in the same fold. Without copies, folds have nearly equal sizes.
        """
        return splits.folds(splits.first_copies(self.data.inputs, self.data.targets), n_folds, self.seed)

    def out_of_fold(
        self,
        models: list[BayesianModel],
        n_folds: int,
        fraction: float,
        n_members: int = 1,
        n_left_out: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> np.ndarray:
        """Train pilot members, and return their outputs for the rows that they were not trained on.

        Parameters
        ----------
        models : list of BayesianModel
            The models to train, which have the same network.
        n_folds : int
            Number of cross-validation folds.
        fraction : float
            Number of epochs, divided by the number of epochs of the fit.
        n_members : int
            Members per model and fold.
        n_left_out : int or None
            Number of folds that are held out in turn; None for all. Only the rows of these folds are predicted.
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
        config = replace(self.config, solver=shortened(self.solver, fraction))
        trained = train(self.key, config, lanes, pad_rows(self.data, fold), on_progress=on_progress)
        slices = [slice(i, i + MEMBERS_PER_PREDICTION) for i in range(0, len(member), MEMBERS_PER_PREDICTION)]
        is_predicted = fold < n_left_out
        inputs = self.data.inputs[is_predicted]
        # Outputs depend only on the network, which all models share
        parts = [MemberPosterior(models[0], trees.take(trained.params, s)).outputs(inputs) for s in slices]
        outputs = np.concatenate(parts)
        outputs = outputs.reshape(*grid.shape[1:], *outputs.shape[1:])  # (models, members, folds, rows, outputs)
        return outputs[:, :, fold[is_predicted], np.arange(len(inputs))]


def shortened(solver: FirstOrder, fraction: float) -> FirstOrder:
    """Return `solver` with `max_iter` multiplied by `fraction`, and without early stopping."""
    return replace(solver, max_iter=max(1, round(solver.max_iter * fraction)), early_stopping=False)


def residual_scorer(data: Data) -> Scorer:
    """Return a scorer of the residuals on `data`: their mean negative log-likelihood, up to a constant.

    The likelihood is Student's t with SCORE_DEGREES_OF_FREEDOM, so that outliers have little influence, and with the
    scale that fits best. The score is averaged over outputs.
    """
    nu = SCORE_DEGREES_OF_FREEDOM

    def score(outputs: np.ndarray) -> float:
        squared = np.asarray(outputs - data.targets, np.float64) ** 2
        variance = weighted_mean(squared, data.weights) + MIN_VARIANCE
        for _ in range(SCORE_STEPS):
            factor = (nu + 1) / (nu + squared / variance)
            variance = weighted_mean(factor * squared, data.weights) + MIN_VARIANCE
        terms = 0.5 * np.log(variance) + 0.5 * (nu + 1) * np.log1p(squared / (nu * variance))
        return float(np.mean(weighted_mean(terms, data.weights)))

    return score


def mean_target(data: Data) -> np.ndarray:
    """Return the mean of the targets in `data` as outputs, (rows, outputs), that do not depend on the inputs."""
    targets = np.asarray(data.targets, np.float64)
    return np.broadcast_to(weighted_mean(targets, data.weights), targets.shape)


def class_frequencies(data: Data, n_classes: int) -> np.ndarray:
    """Return the log frequencies of `n_classes` classes in `data` as outputs, (rows, classes), equal for all rows."""
    counts = np.bincount(data.targets, weights=np.asarray(data.weights)[:, 0], minlength=n_classes)
    log_frequencies = np.log(np.maximum(counts / counts.sum(), np.finfo(np.float64).tiny))
    return np.broadcast_to(log_frequencies, (len(data.targets), n_classes))


def categorical_scorer(data: Data) -> Scorer:
    """Return a scorer of class predictions on `data`: the log loss, in nats per row."""

    def score(outputs: np.ndarray) -> float:
        log_p = outputs - np.logaddexp.reduce(outputs, axis=1, keepdims=True)
        log_p_of_targets = log_p[np.arange(len(log_p)), data.targets]
        return float(-np.average(log_p_of_targets, weights=data.weights[:, 0]))

    return score


def weighted_mean(values: np.ndarray, weights: Array) -> np.ndarray:
    """Return the mean over rows of `values`, (rows, outputs), weighted by `weights`, (rows, 1)."""
    return np.average(values, axis=0, weights=np.broadcast_to(weights, values.shape))
