"""Intervals and sets with guaranteed coverage, by split conformal prediction.

Each of n calibration rows, which the model was not fitted to, has a score s, which is larger the worse the model
predicts the row. Let q be the k-th smallest score, with k = ⌈(n + 1) · coverage⌉. If the calibration rows and a new row
are exchangeable, the score of the new row is at most q with a probability of at least `coverage`, whatever the
distribution of the data and however wrong the model is: of n + 1 exchangeable scores, each is equally likely to be the
k-th smallest. The probability is at most coverage + 1/(n + 1) if no two scores are equal. It is the probability over
draws of the calibration rows and the new row; it does not hold for each x separately.

- Regression: s = max(lower − y, y − upper)/std, where lower and upper are the ends of the model's own interval. The
  score is negative if y lies inside. The guaranteed interval is the model's own, extended by q · std at both ends.
- Classes: s = 1 − p(y), where p is the model's probability. The guaranteed set has all classes with 1 − p ≤ q.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from anchored.errors import ArgumentError
from anchored.model.predictive import CategoricalPredictive, Predictive


@dataclass(frozen=True)
class Guarantee:
    """A guaranteed coverage, and the margin that achieves it.

    Attributes
    ----------
    coverage : float
        The smallest probability with which an interval or a set contains a new observation.
    margin : tuple of float
        q for each output: the number of standard deviations by which the model's own interval is extended at each end;
        negative if it is shortened. For classes a single number: a set has the classes of probability 1 − q or more.
    n_rows : int
        Number of calibration rows.
    fingerprint : str
        Hash of the calibration rows, so that they can be recognised; empty if they are not known.
    """

    coverage: float
    margin: tuple[float, ...]
    n_rows: int
    fingerprint: str = ""

    def interval(self, predictive: Predictive) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of the guaranteed interval of each target that `predictive` describes."""
        lower, upper = predictive.interval(self.coverage)
        extension = np.array(self.margin) * predictive.std
        return lower - extension, upper + extension

    def classes(self, predictive: CategoricalPredictive) -> np.ndarray:
        """Return a mask, (rows, classes), of the classes in the guaranteed set of each row that `predictive` describes.

        The most probable class is always in the set, so that no set is empty.
        """
        p = predictive.probabilities
        in_set = 1 - p <= self.margin[0]
        in_set[np.arange(len(p)), p.argmax(axis=1)] = True
        return in_set


def of_regression(y: np.ndarray, predictive: Predictive, coverage: float) -> Guarantee:
    """Return the guarantee that calibration rows give for each output separately.

    Parameters
    ----------
    y : (rows,) or (rows, outputs)
        Targets of the calibration rows.
    predictive : Predictive
        Their predictive distribution.
    coverage : float
        The probability to guarantee.
    """
    rank = checked_rank(coverage, len(y))
    lower, upper = predictive.interval(coverage)
    scores = np.maximum(lower - y, y - upper) / predictive.std
    return Guarantee(coverage, _scores_of_rank(scores.reshape(len(y), -1), rank), len(y))


def of_classification(codes: np.ndarray, predictive: CategoricalPredictive, coverage: float) -> Guarantee:
    """Return the guarantee that calibration rows give.

    Parameters
    ----------
    codes : (rows,)
        Indices of the classes of the calibration rows.
    predictive : CategoricalPredictive
        Their predictive distribution.
    coverage : float
        The probability to guarantee.
    """
    rank = checked_rank(coverage, len(codes))
    scores = 1 - predictive.probabilities[np.arange(len(codes)), codes]
    return Guarantee(coverage, _scores_of_rank(scores[:, None], rank), len(codes))


def checked_rank(coverage: float, n_rows: int) -> int:
    """Return k, the rank of the score that guarantees `coverage` with `n_rows` calibration rows.

    Raises an ArgumentError if `coverage` does not lie between 0 and 1, or if there are too few rows.
    """
    if not 0 < coverage < 1:
        raise ArgumentError("coverage", f"must lie between 0 and 1, got {coverage!r}")
    exact = Fraction(str(float(coverage)))  # the decimal number: the float 0.95 is a little less than 0.95
    rank = math.ceil((n_rows + 1) * exact)
    if rank > n_rows:
        least = math.ceil(exact / (1 - exact))
        raise ArgumentError(
            "coverage",
            f"{coverage:g} can be guaranteed with {least:,} calibration rows or more, but there are {n_rows:,}",
            "use more rows, or a lower coverage",
        )
    return rank


def _scores_of_rank(scores: np.ndarray, rank: int) -> tuple[float, ...]:
    """Return the score of rank `rank`, 1 for the smallest, in each column of `scores`, (rows, outputs)."""
    return tuple(np.partition(scores.astype(np.float64), rank - 1, axis=0)[rank - 1].tolist())
