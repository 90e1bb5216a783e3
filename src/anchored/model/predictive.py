"""Predictive distributions, with their uncertainty split into an epistemic and an aleatoric part."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Predictive:
    """A normal distribution for each target, with its variance split in two.

    The epistemic variance is the variance between members, which shrinks with more data. The aleatoric variance is the
    noise of an observation, which does not. All arrays have the shape of the targets; means and standard deviations are
    in the units of the targets.
    """

    mean: np.ndarray  # in the units of the targets
    epistemic_variance: np.ndarray  # in their squared units
    aleatoric_variance: np.ndarray  # in their squared units
    n_members: float  # effective number of independent members; infinite if the prediction is exact

    @property
    def variance(self) -> np.ndarray:
        """Variance of a new observation: epistemic plus aleatoric."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of a new observation."""
        return np.sqrt(self.variance)

    @property
    def mean_standard_error(self) -> np.ndarray:
        """Monte-Carlo standard error of `mean` due to the finite number of members; NaN for one member."""
        return np.sqrt(self.epistemic_variance / self.n_members) if self.n_members > 1 else np.nan * self.mean

    @property
    def std_standard_error(self) -> np.ndarray:
        """Monte-Carlo standard error of `std`; NaN for one member."""
        if self.n_members < 2:
            return np.full_like(self.std, np.nan)
        error_of_variance = self.epistemic_variance * np.sqrt(2 / (self.n_members - 1))
        return error_of_variance / (2 * self.std)

    def quantile(self, probability: float) -> np.ndarray:
        """Return the value that a new observation is below with this `probability`, for each target."""
        return self.mean + self.std * stats.norm.ppf(probability)

    def interval(self, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper end of the central interval that has probability `coverage`, for each target."""
        tail = (1 - coverage) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Return log p(y) of each target; `y` has the shape of the targets."""
        return stats.norm.logpdf(y, self.mean, self.std)

    def sample(self, n_samples: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Return `n_samples` independent draws of each target, shape (n_samples, *shape of the targets).

        `random_state` is a seed or a NumPy generator.
        """
        normal = np.random.default_rng(random_state).standard_normal((n_samples, *self.mean.shape))
        return self.mean + self.std * normal


@dataclass(frozen=True)
class CategoricalPredictive:
    """Class probabilities for each row, with their entropy split in two.

    The total entropy is that of the probabilities averaged over members. Its aleatoric part is the average over members
    of each member's entropy, which is due to overlapping classes. The rest, the mutual information between class and
    member, is epistemic: it measures how much members disagree. Entropies are in nats.
    """

    probabilities: np.ndarray  # (rows, classes)
    aleatoric_entropy: np.ndarray  # (rows,)
    probability_variance: np.ndarray  # (rows, classes), between members
    n_members: float  # effective number of independent members

    @property
    def total_entropy(self) -> np.ndarray:
        """Entropy of `probabilities`, shape (rows,)."""
        p = self.probabilities
        return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)

    @property
    def epistemic_entropy(self) -> np.ndarray:
        """Mutual information between the class and the member, shape (rows,)."""
        return np.maximum(self.total_entropy - self.aleatoric_entropy, 0)

    @property
    def standard_error(self) -> np.ndarray:
        """Monte-Carlo standard error of `probabilities`, shape (rows, classes); NaN for one member."""
        return (
            np.sqrt(self.probability_variance / self.n_members) if self.n_members > 1 else np.nan * self.probabilities
        )
