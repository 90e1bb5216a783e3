"""What is known about targets not yet seen, and what is not."""

from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Predictive:
    """A normal for each target: its mean, and its variance split in two.

    The epistemic variance is the members' disagreement, which more data would shrink. The aleatoric variance
    is the noise of an observation, which it would not. All arrays have the shape of the targets.
    """

    mean: np.ndarray
    epistemic_variance: np.ndarray
    aleatoric_variance: np.ndarray
    n_members: float  # independent ones, or as many as they are worth; infinite where the answer is exact

    @property
    def variance(self) -> np.ndarray:
        """Of the next observation: epistemic plus aleatoric."""
        return self.epistemic_variance + self.aleatoric_variance

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of the next observation."""
        return np.sqrt(self.variance)

    @property
    def mean_standard_error(self) -> np.ndarray:
        """Monte-Carlo error of `mean`, from there being only so many members; NaN for one, which tells nothing."""
        return np.sqrt(self.epistemic_variance / self.n_members) if self.n_members > 1 else np.nan * self.mean

    @property
    def std_standard_error(self) -> np.ndarray:
        """Monte-Carlo error of `std`; NaN for one member."""
        if self.n_members < 2:
            return np.full_like(self.std, np.nan)
        error_of_variance = self.epistemic_variance * np.sqrt(2 / (self.n_members - 1))
        return error_of_variance / (2 * self.std)

    def quantile(self, probability: float) -> np.ndarray:
        """The value an observation stays below with this probability."""
        return self.mean + self.std * stats.norm.ppf(probability)

    def interval(self, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper end of the central interval."""
        tail = (1 - coverage) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """log p(y), entry by entry."""
        return stats.norm.logpdf(y, self.mean, self.std)

    def sample(self, n_samples: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Independent draws, (n_samples, *shape of the targets)."""
        normal = np.random.default_rng(random_state).standard_normal((n_samples, *self.mean.shape))
        return self.mean + self.std * normal


@dataclass(frozen=True)
class CategoricalPredictive:
    """Class probabilities, and their uncertainty in nats split in two.

    The total entropy is that of the averaged probabilities; its aleatoric part is the members' own mean
    entropy (classes that overlap), and what is left, the mutual information, is their disagreement.
    """

    probabilities: np.ndarray  # (rows, classes)
    aleatoric_entropy: np.ndarray  # (rows,)
    probability_variance: np.ndarray  # (rows, classes), between members
    n_members: float  # independent ones, or as many as they are worth

    @property
    def total_entropy(self) -> np.ndarray:
        p = self.probabilities
        return -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=-1)

    @property
    def epistemic_entropy(self) -> np.ndarray:
        """The mutual information between the class and the member."""
        return np.maximum(self.total_entropy - self.aleatoric_entropy, 0)

    @property
    def standard_error(self) -> np.ndarray:
        """Monte-Carlo error of `probabilities`; NaN for one member."""
        return (
            np.sqrt(self.probability_variance / self.n_members) if self.n_members > 1 else np.nan * self.probabilities
        )
