"""Predictive distributions, with their uncertainty split into an epistemic and an aleatoric part.

The predictive distribution of a number is a shape, a distribution with mean 0 and variance 1, that is scaled and
shifted. The shape is a skewed Student-t distribution, or a mixture of two. Fernández & Steel (1998) skew a symmetric
density t by stretching its two halves differently:

    f(r) = 2/(γ + 1/γ) · t(rγ) for r < 0,    2/(γ + 1/γ) · t(r/γ) for r ≥ 0

Here t is the Student-t density with ν degrees of freedom. `SkewedT` is the distribution of z = (r − m)/s, where m and s
are the mean and standard deviation of r. With γ = 1 it is symmetric. With ν = ∞ both halves are normal.
"""

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from scipy import integrate, special, stats

SHAPE_RANGES = {  # smallest and largest value of each field of a Shape
    "degrees_of_freedom": (3.0, np.inf),  # up to 2 the variance is infinite; near 2 it says little about quantiles
    "skewness": (0.2, 5.0),
    "share": (0.25, 1.0),
    "ratio": (0.2, 5.0),
    "shift": (-5.0, 5.0),
}
N_GRID_POINTS = 4001  # grid points of the numerical integral in `Shape._half_mean_difference`
MAX_NEWTON_STEPS = 60  # largest number of Newton steps in `Shape.ppf`


@dataclass(frozen=True)
class SkewedT:
    """A skewed Student-t distribution with mean 0 and variance 1. Arguments of methods broadcast with the fields."""

    degrees_of_freedom: np.ndarray | float = np.inf  # ν, a number or (outputs,)
    skewness: np.ndarray | float = 1.0  # γ > 0, a number or (outputs,); above 1, the upper tail is longer

    def logpdf(self, z: np.ndarray) -> np.ndarray:
        """Return the log density at each entry of `z`."""
        gamma, r = self._gamma, self._unstandardised(z)
        stretched = np.where(r < 0, r * gamma, r / gamma)
        return _log_density_of_t(stretched, self._nu) + np.log(2 * self._std / (gamma + 1 / gamma))

    def cdf(self, z: np.ndarray) -> np.ndarray:
        """Return the probability of a value below each entry of `z`."""
        gamma, r = self._gamma, self._unstandardised(z)
        lower = 2 / (1 + gamma**2) * stats.t.cdf(np.minimum(r, 0) * gamma, self._nu)
        upper = 2 * gamma**2 / (1 + gamma**2) * stats.t.sf(np.maximum(r, 0) / gamma, self._nu)
        return np.where(r < 0, lower, 1 - upper)

    def ppf(self, probability: np.ndarray | float) -> np.ndarray:
        """Return the quantile of each `probability`, the inverse of `cdf`."""
        gamma, p = self._gamma, np.asarray(probability, np.float64)
        p_negative = 1 / (1 + gamma**2)  # the probability of r < 0
        lower = stats.t.ppf(np.minimum(p, p_negative) / (2 * p_negative), self._nu) / gamma
        upper = stats.t.isf(np.minimum(1 - p, 1 - p_negative) / (2 * (1 - p_negative)), self._nu) * gamma
        return (np.where(p < p_negative, lower, upper) - self._mean) / self._std

    @property
    def _nu(self) -> np.ndarray:
        """ν, or ∞ (a normal distribution) if ν is so large that the formulas would lose precision."""
        nu = np.asarray(self.degrees_of_freedom, np.float64)
        return np.where(nu < 1e8, nu, np.inf)

    @property
    def _gamma(self) -> np.ndarray:
        """γ."""
        return np.asarray(self.skewness, np.float64)

    @cached_property
    def _mean(self) -> np.ndarray:
        """m, the mean of r."""
        return _mean_magnitude_of_t(self._nu) * (self._gamma - 1 / self._gamma)

    @cached_property
    def _std(self) -> np.ndarray:
        """s, the standard deviation of r."""
        gamma = self._gamma
        mean_square = _variance_of_t(self._nu) * (gamma**3 + gamma**-3) / (gamma + 1 / gamma)
        return np.sqrt(mean_square - self._mean**2)

    def _unstandardised(self, z: np.ndarray) -> np.ndarray:
        """Return r = m + s z for each entry of `z`."""
        return self._mean + self._std * np.asarray(z, np.float64)

    def partial_mean(self, z: np.ndarray) -> np.ndarray:
        """Return ∫ x p(x) dx from −∞ to each entry of `z`, where p is the density."""
        gamma, r = self._gamma, self._unstandardised(z)
        factor = 2 / (gamma + 1 / gamma)
        lower = factor / gamma**2 * _partial_mean_of_t(np.minimum(r, 0) * gamma, self._nu)
        above_zero = _partial_mean_of_t(np.maximum(r, 0) / gamma, self._nu) - _partial_mean_of_t(0.0, self._nu)
        upper = factor * gamma**2 * above_zero
        return (lower + upper - self._mean * self.cdf(z)) / self._std


@dataclass(frozen=True)
class Shape:
    """A mixture of two skewed Student-t distributions with mean 0 and variance 1. The default is the standard normal.

    The first component is the distribution of u, a SkewedT, and the second is the distribution of `shift + ratio * u`.
    Their mixture is standardised. All fields are numbers or (outputs,). Arguments of methods broadcast with the fields.
    """

    degrees_of_freedom: np.ndarray | float = np.inf  # degrees of freedom of u
    skewness: np.ndarray | float = 1.0  # skewness of u
    share: np.ndarray | float = 1.0  # probability of the first component; 1 if it is the only one
    ratio: np.ndarray | float = 1.0  # standard deviation of the second component, divided by that of the first
    shift: np.ndarray | float = 0.0  # mean of the second component, in standard deviations of the first

    @property
    def is_normal(self) -> bool:
        """Whether this is the standard normal distribution."""
        return bool(np.all(np.isinf(self.degrees_of_freedom) & (self.skewness == 1.0) & (self.share == 1.0)))

    def logpdf(self, z: np.ndarray) -> np.ndarray:
        """Return the log density at each entry of `z`."""
        if np.all(self._share == 1):
            return self._component.logpdf(z)
        first, second = self._in_components(z)
        with np.errstate(divide="ignore"):  # log 0 = −∞ for a share of 1
            log_first, log_second = np.log(self._share), np.log1p(-self._share) - np.log(self.ratio)
        terms = log_first + self._component.logpdf(first), log_second + self._component.logpdf(second)
        return np.logaddexp(*terms) + np.log(self._std)

    def cdf(self, z: np.ndarray) -> np.ndarray:
        """Return the probability of a value below each entry of `z`."""
        first, second = self._in_components(z)
        return self._share * self._component.cdf(first) + (1 - self._share) * self._component.cdf(second)

    def ppf(self, probability: np.ndarray | float) -> np.ndarray:
        """Return the quantile of each `probability`, the inverse of `cdf`."""
        u = self._component.ppf(probability)
        if np.all(self._share == 1):
            return u
        # The quantile lies between those of the two components; Newton steps that leave this interval become bisections
        ends = (u - self._mean) / self._std, (self.shift + self.ratio * u - self._mean) / self._std
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
            with np.errstate(all="ignore"):  # the density may be 0
                newton = z - excess / np.exp(self.logpdf(z))
            next_z = np.where((low < newton) & (newton < high), newton, (low + high) / 2)
            z = np.where(is_found, z, next_z)
        return z

    def crps(self, z: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score E|Z − z| − ½ E|Z − Z'| of each entry of `z`."""
        first, second = self._in_components(z)
        of_second = self.shift * self._component.cdf(second) + self.ratio * self._component.partial_mean(second)
        of_mixture = self._share * self._component.partial_mean(first) + (1 - self._share) * of_second
        partial_mean = (of_mixture - self._mean * self.cdf(z)) / self._std
        return np.asarray(z) * (2 * self.cdf(z) - 1) - 2 * partial_mean - self._half_mean_difference

    @cached_property
    def _component(self) -> SkewedT:
        """The distribution of u."""
        return SkewedT(self.degrees_of_freedom, self.skewness)

    @property
    def _share(self) -> np.ndarray:
        """`share` as an array."""
        return np.asarray(self.share, np.float64)

    @property
    def _mean(self) -> np.ndarray:
        """Mean of the mixture before it is standardised."""
        return (1 - self._share) * self.shift

    @property
    def _std(self) -> np.ndarray:
        """Standard deviation of the mixture before it is standardised."""
        mean_square_of_second = np.square(self.ratio) + np.square(self.shift)
        return np.sqrt(self._share + (1 - self._share) * mean_square_of_second - self._mean**2)

    def _in_components(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the value of u that becomes each entry of `z`, in the first and in the second component."""
        value = self._mean + self._std * np.asarray(z, np.float64)
        return value, (value - self.shift) / self.ratio

    @cached_property
    def _half_mean_difference(self) -> np.ndarray:
        """½ E|Z − Z'| of two independent draws, which is ∫ F(1 − F) dz with the distribution function F."""
        p = special.expit(np.linspace(-18, 18, N_GRID_POINTS))[:, None]
        shape = np.broadcast_shapes(*(np.shape(getattr(self, field.name)) for field in fields(self)))
        z = np.broadcast_to(self.ppf(p), (N_GRID_POINTS, *(shape or (1,))))
        return integrate.trapezoid(np.broadcast_to(p * (1 - p), z.shape), z, axis=0).reshape(shape)


@dataclass(frozen=True)
class Predictive:
    """The predictive distribution of each target, with its variance split into an epistemic and an aleatoric part.

    The epistemic variance is the variance between members, which shrinks with more data. The aleatoric variance is the
    noise of an observation, which does not. All arrays have the shape of the targets. `pdf`, `logpdf`, `cdf`, `ppf` and
    `interval` are called as in SciPy. Unlike in SciPy, mean, variance and standard deviation are attributes.
    """

    mean: np.ndarray  # in the units of the targets
    epistemic_variance: np.ndarray  # in squared units of the targets
    aleatoric_variance: np.ndarray  # in squared units of the targets
    n_members: float  # effective number of independent members; infinite if the prediction is exact
    shape: Shape = Shape()  # the distribution of (target − mean)/std; by default the standard normal

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
        """Monte-Carlo standard error of `std` due to the finite number of members; NaN for one member."""
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
        """Return the quantile of each target: a new observation is below it with this `probability`."""
        return self.mean + self.std * self.shape.ppf(probability)

    quantile = ppf

    def interval(self, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of the central interval with probability `coverage`, for each target."""
        tail = (1 - coverage) / 2
        return self.ppf(tail), self.ppf(1 - tail)

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the continuous ranked probability score of each observation in `y`, in the units of the targets."""
        return self.std * self.shape.crps(self._standardised(y))

    def sample(self, n_samples: int = 1, random_state: int | np.random.Generator | None = None) -> np.ndarray:
        """Return `n_samples` independent draws of each target, shape (n_samples, *shape of the targets).

        `random_state` is a seed or a NumPy generator.
        """
        uniform = np.random.default_rng(random_state).uniform(size=(n_samples, *self.mean.shape))
        return self.mean + self.std * self.shape.ppf(uniform)

    def _standardised(self, y: np.ndarray) -> np.ndarray:
        """Return (y − mean)/std."""
        return (np.asarray(y, np.float64) - self.mean) / self.std


@dataclass(frozen=True)
class CategoricalPredictive:
    """Class probabilities of each row, with their entropy split into an epistemic and an aleatoric part.

    The total entropy is the entropy of the averaged probabilities. The aleatoric part is the average entropy of a
    member's probabilities, which is due to overlapping classes. The rest is epistemic: the mutual information between
    class and member, which measures how much members disagree. Entropies are in nats.
    """

    probabilities: np.ndarray  # (rows, classes), averaged over members
    aleatoric_entropy: np.ndarray  # (rows,)
    probability_variance: np.ndarray  # (rows, classes), variance of the probabilities between members
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
    """Return the log density of a Student-t variable at `x`. SciPy's function takes several times as long."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    constant = special.gammaln((finite + 1) / 2) - special.gammaln(finite / 2) - 0.5 * np.log(np.pi * finite)
    of_t = constant - 0.5 * (finite + 1) * np.log1p(np.square(x) / finite)
    return np.where(np.isfinite(nu), of_t, -0.5 * np.square(x) - 0.5 * np.log(2 * np.pi))


def _mean_magnitude_of_t(nu: np.ndarray) -> np.ndarray:
    """Return E|T| of a Student-t variable T. It is √(2/π) if `nu` is infinite."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    log_ratio = special.gammaln((finite + 1) / 2) - special.gammaln(finite / 2)
    value = 2 * np.sqrt(finite / np.pi) * np.exp(log_ratio) / (finite - 1)
    return np.where(np.isfinite(nu), value, np.sqrt(2 / np.pi))


def _variance_of_t(nu: np.ndarray) -> np.ndarray:
    """Return the variance of a Student-t variable. It is 1 if `nu` is infinite."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    return np.where(np.isfinite(nu), finite / (finite - 2), 1.0)


def _partial_mean_of_t(x: np.ndarray | float, nu: np.ndarray) -> np.ndarray:
    """Return ∫ u t(u) du from −∞ to `x`, where t is the Student-t density."""
    finite = np.where(np.isfinite(nu), nu, 1e9)
    factor = np.where(np.isfinite(nu), (finite + np.square(np.where(np.isinf(x), 0.0, x))) / (finite - 1), 1.0)
    return np.where(np.isinf(x), 0.0, -factor * stats.t.pdf(x, nu))
