"""Predictive distributions, with their uncertainty split into an epistemic and an aleatoric part.

The shape of a predictive distribution has mean 0 and variance 1. It is a skewed Student-t, or a mixture of two.
Fernández & Steel (1998) make a symmetric density t skewed by stretching its two halves differently:

    f(r) = 2/(γ + 1/γ) · t(rγ) for r < 0,    2/(γ + 1/γ) · t(r/γ) for r ≥ 0

With t the Student-t density of ν degrees of freedom, r has some mean m and standard deviation s, and the shape is the
distribution of z = (r − m)/s. γ = 1 is the symmetric t, and ν = ∞ makes both halves normal.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy import integrate, special, stats

SHAPE_RANGES = {  # smallest and largest value of each field of a Shape
    "degrees_of_freedom": (3.0, np.inf),  # below 2 there is no variance, and near 2 it says little of the quantiles
    "skewness": (0.2, 5.0),
    "share": (0.25, 1.0),
    "ratio": (0.2, 5.0),
    "shift": (-5.0, 5.0),
}
GRID = 4001  # points of the integral in `_half_mean_difference`
MAX_NEWTON_STEPS = 60  # in `Shape.ppf`; a step that leaves the interval is replaced by its middle


@dataclass(frozen=True)
class SkewedT:
    """A skewed Student-t distribution with mean 0 and variance 1; arguments of methods broadcast with the fields."""

    degrees_of_freedom: np.ndarray | float = np.inf  # ν, a number, or (outputs,)
    skewness: np.ndarray | float = 1.0  # γ, positive: a number, or (outputs,); above 1 the upper tail is the longer one

    def logpdf(self, z: np.ndarray) -> np.ndarray:
        """Return the log density at each of `z`."""
        gamma, r = self._gamma, self._raw(z)
        stretched = np.where(r < 0, r * gamma, r / gamma)
        return _log_density_of_t(stretched, self._nu) + np.log(2 * self._std / (gamma + 1 / gamma))

    def cdf(self, z: np.ndarray) -> np.ndarray:
        """Return the probability of a value below each of `z`."""
        gamma, r = self._gamma, self._raw(z)
        lower = 2 / (1 + gamma**2) * stats.t.cdf(np.minimum(r, 0) * gamma, self._nu)
        upper = 2 * gamma**2 / (1 + gamma**2) * stats.t.sf(np.maximum(r, 0) / gamma, self._nu)
        return np.where(r < 0, lower, 1 - upper)

    def ppf(self, probability: np.ndarray | float) -> np.ndarray:
        """Return the quantile of each `probability`, the inverse of `cdf`."""
        gamma, p = self._gamma, np.asarray(probability, np.float64)
        below = 1 / (1 + gamma**2)  # the probability of r < 0
        lower = stats.t.ppf(np.minimum(p, below) / (2 * below), self._nu) / gamma
        upper = stats.t.isf(np.minimum(1 - p, 1 - below) / (2 * (1 - below)), self._nu) * gamma
        return (np.where(p < below, lower, upper) - self._mean) / self._std

    @property
    def _nu(self) -> np.ndarray:
        """ν; so many degrees of freedom that the formulas below lose their digits count as a normal."""
        nu = np.asarray(self.degrees_of_freedom, np.float64)
        return np.where(nu < 1e8, nu, np.inf)

    @property
    def _gamma(self) -> np.ndarray:
        return np.asarray(self.skewness, np.float64)

    @cached_property
    def _mean(self) -> np.ndarray:
        """m, the mean of r."""
        return _mean_magnitude(self._nu) * (self._gamma - 1 / self._gamma)

    @cached_property
    def _std(self) -> np.ndarray:
        """s, the standard deviation of r."""
        gamma = self._gamma
        square = _variance(self._nu) * (gamma**3 + gamma**-3) / (gamma + 1 / gamma)
        return np.sqrt(square - self._mean**2)

    def _raw(self, z: np.ndarray) -> np.ndarray:
        """r for each of `z`."""
        return self._mean + self._std * np.asarray(z, np.float64)

    def partial_mean(self, z: np.ndarray) -> np.ndarray:
        """Return ∫ x f(x) dx from −∞ to each of `z`, for the density f of z."""
        gamma, r = self._gamma, self._raw(z)
        factor = 2 / (gamma + 1 / gamma)
        lower = factor / gamma**2 * _partial_mean_of_t(np.minimum(r, 0) * gamma, self._nu)
        upper = (
            factor
            * gamma**2
            * (_partial_mean_of_t(np.maximum(r, 0) / gamma, self._nu) - _partial_mean_of_t(0.0, self._nu))
        )
        return (lower + upper - self._mean * self.cdf(z)) / self._std


@dataclass(frozen=True)
class Shape:
    """A mixture of two skewed Student-t distributions, scaled to mean 0 and variance 1; by default the standard normal.

    A draw u of a SkewedT is taken as it is with probability `share`, otherwise as `shift + ratio * u`; the shape is
    the distribution of the result, standardised. Arguments of methods broadcast with the fields.
    """

    degrees_of_freedom: np.ndarray | float = np.inf  # of both parts; all fields are numbers, or (outputs,)
    skewness: np.ndarray | float = 1.0  # of both parts
    share: np.ndarray | float = 1.0  # of the first part; 1 if it is the only one
    ratio: np.ndarray | float = 1.0  # of the second part's standard deviation to that of the first
    shift: np.ndarray | float = 0.0  # of the second part's mean, in standard deviations of the first

    @property
    def is_normal(self) -> bool:
        """Whether this is the standard normal distribution."""
        return bool(np.all(np.isinf(self.degrees_of_freedom) & (self.skewness == 1.0) & (self.share == 1.0)))

    def logpdf(self, z: np.ndarray) -> np.ndarray:
        """Return the log density at each of `z`."""
        if np.all(self._share == 1):
            return self._part.logpdf(z)
        first, second = self._in_parts(z)
        with np.errstate(divide="ignore"):  # log 0 = −∞ for a share of 1
            log_first, log_second = np.log(self._share), np.log1p(-self._share) - np.log(self.ratio)
        terms = log_first + self._part.logpdf(first), log_second + self._part.logpdf(second)
        return np.logaddexp(*terms) + np.log(self._std)

    def cdf(self, z: np.ndarray) -> np.ndarray:
        """Return the probability of a value below each of `z`."""
        first, second = self._in_parts(z)
        return self._share * self._part.cdf(first) + (1 - self._share) * self._part.cdf(second)

    def ppf(self, probability: np.ndarray | float) -> np.ndarray:
        """Return the quantile of each `probability`, the inverse of `cdf`."""
        of_part = self._part.ppf(probability)
        if np.all(self._share == 1):
            return of_part
        # The quantile lies between those of the two parts
        ends = (of_part - self._mean) / self._std, (self.shift + self.ratio * of_part - self._mean) / self._std
        low, high = np.minimum(*ends), np.maximum(*ends)
        z = (low + high) / 2
        tail = np.minimum(probability, np.subtract(1, probability))
        tolerance = np.maximum(1e-12 * tail, 2e-16 * np.asarray(probability))
        for _ in range(MAX_NEWTON_STEPS):
            excess = self.cdf(z) - probability
            is_found = (np.abs(excess) <= tolerance) | (low >= high)
            if is_found.all():
                break
            low, high = np.where(excess < 0, z, low), np.where(excess < 0, high, z)
            with np.errstate(all="ignore"):
                newton = z - excess / np.exp(self.logpdf(z))
            next_z = np.where((low < newton) & (newton < high), newton, (low + high) / 2)
            z = np.where(is_found, z, next_z)
        return z

    def crps(self, z: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score E|Z − z| − ½ E|Z − Z'| for each of `z`."""
        first, second = self._in_parts(z)
        of_second = self.shift * self._part.cdf(second) + self.ratio * self._part.partial_mean(second)
        partial_mean = self._share * self._part.partial_mean(first) + (1 - self._share) * of_second
        partial_mean = (partial_mean - self._mean * self.cdf(z)) / self._std
        return np.asarray(z) * (2 * self.cdf(z) - 1) - 2 * partial_mean - self._half_mean_difference

    @cached_property
    def _part(self) -> SkewedT:
        """The distribution of u."""
        return SkewedT(self.degrees_of_freedom, self.skewness)

    @property
    def _share(self) -> np.ndarray:
        return np.asarray(self.share, np.float64)

    @property
    def _mean(self) -> np.ndarray:
        """Mean before standardisation."""
        return (1 - self._share) * self.shift

    @property
    def _std(self) -> np.ndarray:
        """Standard deviation before standardisation."""
        square = np.square(self.ratio) + np.square(self.shift)
        return np.sqrt(self._share + (1 - self._share) * square - self._mean**2)

    def _in_parts(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The value of u that gives each of `z`, for the first and the second part."""
        value = self._mean + self._std * np.asarray(z, np.float64)
        return value, (value - self.shift) / self.ratio

    @cached_property
    def _half_mean_difference(self) -> np.ndarray:
        """½ E|Z − Z'| of two independent draws, ∫ F(1 − F), over quantiles."""
        p = special.expit(np.linspace(-18, 18, GRID))[:, None]
        shape = np.broadcast_shapes(*(np.shape(getattr(self, field.name)) for field in fields(self)))
        z = np.broadcast_to(self.ppf(p), (GRID, *(shape or (1,))))
        return integrate.trapezoid(p * (1 - p), z, axis=0).reshape(shape)


@dataclass(frozen=True)
class Predictive:
    """The distribution of each target: normal, Student-t, skewed or a mixture, with its variance split in two.

    The epistemic variance is the variance between members, which shrinks with more data. The aleatoric variance is the
    noise of an observation, which does not. All arrays have the shape of the targets; means and standard
    deviations are in the units of the targets. `pdf`, `logpdf`, `cdf`, `ppf` and `interval` are called as in SciPy;
    mean, variance and standard deviation are attributes.
    """

    mean: np.ndarray  # in the units of the targets
    epistemic_variance: np.ndarray  # in their squared units
    aleatoric_variance: np.ndarray  # in their squared units
    n_members: float  # effective number of independent members; infinite if the prediction is exact
    shape: Shape = Shape()  # the distribution of (target − mean)/std; by default normal

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

    def logpdf(self, y: np.ndarray) -> np.ndarray:
        """Return the log density of each target at `y`, which has the shape of the targets."""
        return self.shape.logpdf(self._standardised(y)) - np.log(self.std)

    def pdf(self, y: np.ndarray) -> np.ndarray:
        """Return the density of each target at `y`, which has the shape of the targets."""
        return np.exp(self.logpdf(y))

    def cdf(self, y: np.ndarray) -> np.ndarray:
        """Return the probability that each target is below `y`, which has the shape of the targets."""
        return self.shape.cdf(self._standardised(y))

    def ppf(self, probability: float) -> np.ndarray:
        """Return the value that a new observation is below with this `probability`, for each target."""
        return self.mean + self.std * self.shape.ppf(probability)

    quantile = ppf

    def interval(self, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper end of the central interval that has probability `coverage`, for each target."""
        tail = (1 - coverage) / 2
        return self.ppf(tail), self.ppf(1 - tail)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score of each target for the observations `y`, in their units."""
        return self.std * self.shape.crps(self._standardised(y))

    def sample(self, n_samples: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Return `n_samples` independent draws of each target, shape (n_samples, *shape of the targets).

        `random_state` is a seed or a NumPy generator.
        """
        uniform = np.random.default_rng(random_state).uniform(size=(n_samples, *self.mean.shape))
        return self.mean + self.std * self.shape.ppf(uniform)

    def _standardised(self, y: np.ndarray) -> np.ndarray:
        """(y − mean)/std."""
        return (np.asarray(y, np.float64) - self.mean) / self.std


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


def _log_density_of_t(x: np.ndarray, nu: np.ndarray) -> np.ndarray:
    """Log density of a Student-t variable at `x`; SciPy's function takes several times as long."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    constant = special.gammaln((finite + 1) / 2) - special.gammaln(finite / 2) - 0.5 * np.log(np.pi * finite)
    of_t = constant - 0.5 * (finite + 1) * np.log1p(np.square(x) / finite)
    return np.where(np.isfinite(nu), of_t, -0.5 * np.square(x) - 0.5 * np.log(2 * np.pi))


def _mean_magnitude(nu: np.ndarray) -> np.ndarray:
    """E|T| of a Student-t variable; √(2/π) for a normal."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    log_ratio = special.gammaln((finite + 1) / 2) - special.gammaln(finite / 2)
    value = 2 * np.sqrt(finite / np.pi) * np.exp(log_ratio) / (finite - 1)
    return np.where(np.isfinite(nu), value, np.sqrt(2 / np.pi))


def _variance(nu: np.ndarray) -> np.ndarray:
    """The variance of a Student-t variable; 1 for a normal."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    return np.where(np.isfinite(nu), finite / (finite - 2), 1.0)


def _partial_mean_of_t(x: np.ndarray | float, nu: np.ndarray) -> np.ndarray:
    """∫ u t(u) du from −∞ to `x`."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    factor = np.where(np.isfinite(nu), (finite + np.square(x)) / (finite - 1), 1.0)
    return -factor * stats.t.pdf(x, nu)
