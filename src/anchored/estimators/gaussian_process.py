"""NNGPRegressor: the exact posterior of an infinitely wide network."""

import warnings
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from anchored import checks, trees
from anchored.estimators import settings
from anchored.estimators.standardisation import TARGET_RANGE, Standardisation
from anchored.exact.gaussian_process import ConditionedProcess, GaussianProcess
from anchored.exact.kernels import Kernel, NetworkKernel, tangent_kernel
from anchored.model.networks import ACTIVATIONS, MLP
from anchored.model.predictive import Predictive
from anchored.model.priors import default_layer_scales
from anchored.types import Array, Data

KERNELS = ("nngp", "ntk")
DOUBLE = np.dtype(np.float64)
PRIOR_SCALES = (0.03, 30.0)  # what "auto" may choose
NOISE_VARIANCES = (1e-7, 10.0)  # in variances of y
STARTS = ((1.0, 0.3), (5.0, 0.03), (5.0, 1e-4))  # of both; much noise and little may each have an optimum
MOST_ROWS_TO_CHOOSE_BY = 1_000
PRECISION = {"ftol": 1e-13, "gtol": 1e-6}  # so that weights equal repetition


@trees.register
@dataclass(frozen=True)
class PriorKernel:
    """The kernel under the papers' prior, with the scale of the first layer its one hyperparameter."""

    first_scale: Array
    deeper_scales: tuple[float, ...] = field(metadata={"static": True})
    activation: str = field(metadata={"static": True})
    tangent: bool = field(metadata={"static": True})

    def matrix(self, x: Array, z: Array) -> Array:
        return self.written_out(x.shape[1]).matrix(x, z)

    def diagonal(self, x: Array) -> Array:
        return self.written_out(x.shape[1]).diagonal(x)

    def written_out(self, n_features: int) -> Kernel:
        """First weights N(0, c²/D) and biases N(0, c²), deeper weights N(0, c²/H) with a c of their own, no biases."""
        first = self.first_scale**2
        weights = (first / n_features, *(scale**2 for scale in self.deeper_scales))
        biases = (first, *[0.0] * len(self.deeper_scales))
        kernel = NetworkKernel(weights, biases, self.activation)
        return tangent_kernel(kernel) if self.tangent else kernel


class NNGPRegressor(RegressorMixin, BaseEstimator):
    """Exact Bayesian regression with an infinitely wide neural network, which is a Gaussian process.

    Inputs and targets are standardised inside. What is left to "auto" is chosen by the log marginal likelihood.
    Time grows with the cube of the number of rows, memory with its square.

    Parameters
    ----------
    n_hidden_layers : int
    activation : str
        As in `AnchoredRegressor`. "relu", "erf", "sin" and "identity" have closed forms, the others a quadrature.
    kernel : "nngp" or "ntk"
        The Bayesian network itself, or its tangent kernel: the process that training all layers moves in.
    prior_scale : "auto", float, or one for each layer
        Standard deviation of first-layer pre-activations, √b in the papers: how quickly functions may bend.
    noise_variance : "auto", float or one for each output
        In squared units of y. "auto" takes one share of the variance of y for all outputs.
    max_rows : int
        More rows are refused, before memory or patience run out.
    random_state : int, RandomState or None
        Which rows "auto" chooses by, where there are more than 1,000.

    Attributes
    ----------
    prior_scale_ : float or tuple
    noise_variance_ : float or (n_outputs,)
        In squared units of y.
    kernel_ : NetworkKernel or TangentKernel
        Of standardised inputs and outputs.
    process_ : ConditionedProcess
        The posterior, standardised as well.
    log_marginal_likelihood_value_ : float
        log p(y) of the standardised y, over all rows and outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored.estimators.gaussian_process import NNGPRegressor
    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=30)
    >>> model = NNGPRegressor(activation="erf").fit(x, np.sin(3 * x[:, 0]) + noise)
    >>> mean, std = model.predict([[0.0], [3.0]], return_std=True)
    >>> bool(std[1] > 3 * std[0])  # far from the data it knows that it does not know
    True
    """

    def __init__(
        self,
        n_hidden_layers=1,
        activation="relu",
        kernel="nngp",
        prior_scale="auto",
        noise_variance="auto",
        max_rows=10_000,
        random_state=None,
    ):
        self.n_hidden_layers = n_hidden_layers
        self.activation = activation
        self.kernel = kernel
        self.prior_scale = prior_scale
        self.noise_variance = noise_variance
        self.max_rows = max_rows
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "NNGPRegressor":
        """Choose what is left to "auto", and condition on the rows.

        A weight multiplies its row's log-likelihood: 2 counts the row twice, 0 leaves it out.
        """
        self.__dict__.pop("process_", None)  # a fit that fails must not leave half of an old model behind
        self._check_arguments()
        data = self._read(X, y, sample_weight)
        square = self.y_standardisation_.scale**2
        given = self._given_noise(len(square))
        scales = self._layer_scales()
        kernel = PriorKernel(scales[0], scales[1:], self.activation, self.kernel == "ntk")
        noise = np.ones(len(square)) if given is None else given / square
        free = (isinstance(self.prior_scale, str), given is None)
        if any(free):
            kernel, noise = _most_probable(kernel, noise, _some_rows(data, self.random_state), free)

        self.prior_scale_ = scales if np.ndim(self.prior_scale) else kernel.first_scale
        self.noise_variance_ = float((noise * square)[0]) if self.y_is_vector_ else noise * square
        self.kernel_ = kernel.written_out(self.n_features_in_)
        process = GaussianProcess(self.kernel_, noise).condition(*data)
        self.log_marginal_likelihood_value_ = process.log_marginal_likelihood + _log_power(noise, data)
        self.process_: ConditionedProcess = process
        return self

    def _read(self, X: Any, y: Any, sample_weight: Any) -> Data:
        """Standardised rows; those of weight zero are left out, as if they were not there."""
        checks = {"dtype": np.float64, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2}
        X, y = validate_data(self, X, y, **checks)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        seen = weights > 0
        n_rows = int(seen.sum())
        if n_rows < 2:
            raise ValueError(f"sample_weight: all but {n_rows} are zero, which leaves too few rows to learn from")
        self._check_size(n_rows, "X")
        X, y, weights = X[seen], np.asarray(y, np.float64)[seen], weights[seen]
        self.y_is_vector_ = y.ndim == 1
        columns = y.reshape(n_rows, -1)
        self.x_standardisation_ = Standardisation.of(X, weights, "X")
        self.y_standardisation_ = Standardisation.of(columns, weights, "y", TARGET_RANGE)
        inputs = self.x_standardisation_.apply(X, DOUBLE, "X")
        return Data(inputs, self.y_standardisation_.apply(columns, DOUBLE, "y"), weights[:, None])

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean; with it the standard deviation of an observation, or the covariance between rows.

        Both include the observation noise. `predict_dist` has the split.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be true")
        if return_cov:
            return self._mean_and_covariance(X)
        if return_std:
            predictive = self.predict_dist(X)
            return predictive.mean, predictive.std
        inputs = self._inputs(X)
        return self._in_units_of_y(self.process_.predict(inputs))

    def predict_dist(self, X: Any) -> Predictive:
        """The predictive distribution of each row, with its epistemic and aleatoric variance."""
        inputs = self._inputs(X)
        mean, std = self.process_.predict(inputs, return_std=True)
        epistemic = self._shaped((std * self.y_standardisation_.scale) ** 2)
        noise = np.broadcast_to(self.noise_variance_, epistemic.shape)
        return Predictive(self._in_units_of_y(mean), epistemic, noise, np.inf)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends between which an observation falls with probability `coverage`."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        return self.predict_dist(X).interval(coverage)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Observations: (rows, n_samples), or (rows, outputs, n_samples).

        Each sample follows one function over all rows and adds the observation noise.
        """
        checks.whole("n_samples", n_samples)
        inputs = self._inputs(X)
        self._check_size(len(inputs), "sample_y")
        rng = check_random_state(random_state)
        functions = self.process_.sample(inputs, n_samples, seed=rng.randint(np.iinfo(np.int32).max))
        draws = self._in_units_of_y(functions)
        draws += np.sqrt(self.noise_variance_) * rng.standard_normal(draws.shape)
        return np.moveaxis(draws, 0, -1)

    def _inputs(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return self.x_standardisation_.apply(X, DOUBLE, "X")

    def _mean_and_covariance(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """As `GaussianProcessRegressor`: (rows, rows), or (rows, rows, outputs)."""
        inputs = self._inputs(X)
        self._check_size(len(inputs), "return_cov")
        mean, covariance = self.process_.predict(inputs, return_cov=True)
        covariance = covariance * self.y_standardisation_.scale**2
        covariance[np.diag_indices(len(inputs))] += self.noise_variance_
        return self._in_units_of_y(mean), self._shaped(covariance)

    def _in_units_of_y(self, values: np.ndarray) -> np.ndarray:
        return self._shaped(values * self.y_standardisation_.scale + self.y_standardisation_.mean)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        """Without the axis of outputs where y had none."""
        return array[..., 0] if self.y_is_vector_ else array

    # Arguments

    def _layer_scales(self) -> tuple[float, ...]:
        """A prior scale for each layer; where it is to be chosen, the first is a place-holder."""
        network = MLP((1,) * self.n_hidden_layers, 1, self.activation)
        default = default_layer_scales(network, 1.0)
        if isinstance(self.prior_scale, str):
            return default
        if np.ndim(self.prior_scale) == 0:
            return (float(self.prior_scale), *default[1:])
        if len(self.prior_scale) != len(default):
            raise ValueError(f"prior_scale: the network has {len(default)} layers, got {len(self.prior_scale)} scales")
        return tuple(float(scale) for scale in self.prior_scale)

    def _given_noise(self, n_outputs: int) -> np.ndarray | None:
        """The noise variance of each output, or None where it is to be chosen."""
        value = self.noise_variance
        if isinstance(value, str) and value == "auto":
            return None
        try:
            noise = np.broadcast_to(np.asarray(value, np.float64), (n_outputs,))
        except (ValueError, TypeError):
            wanted = f'"auto", one number or one for each of {n_outputs} outputs'
            raise ValueError(f"noise_variance must be {wanted}, got {value!r}") from None
        if not np.all(np.isfinite(noise) & (noise > 0)):
            raise ValueError(f"noise_variance must be positive, got {value!r}")
        return noise

    def _check_arguments(self) -> None:
        checks.whole("n_hidden_layers", self.n_hidden_layers)
        checks.whole("max_rows", self.max_rows)
        checks.one_of("activation", self.activation, ACTIVATIONS)
        checks.one_of("kernel", self.kernel, KERNELS)
        settings.check_prior_scale(self.prior_scale)

    def _check_size(self, n_rows: int, what: str) -> None:
        if n_rows > self.max_rows:
            raise ValueError(
                f"{what}: {n_rows:,} rows are more than max_rows={self.max_rows:,}; their covariances take "
                f"{8 * n_rows**2 / 1e9:,.1f} GB. Take a part of the rows, raise max_rows, or use AnchoredRegressor."
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "process_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _most_probable(
    kernel: PriorKernel, noise: np.ndarray, data: Data, free: tuple[bool, bool]
) -> tuple[PriorKernel, np.ndarray]:
    """The kernel and the noise, or that of the two which is free, under which the targets are most probable."""
    given = (kernel.first_scale, 1.0)

    def at(logarithms: np.ndarray) -> tuple[PriorKernel, np.ndarray]:
        scale, factor = np.where(free, np.exp(logarithms), given).tolist()  # what is given stays to the last bit
        return replace(kernel, first_scale=scale), factor * noise

    def misfit(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        tried, tried_noise = at(logarithms)
        evidence = GaussianProcess(tried, tried_noise).evidence(*data)
        value = evidence.value + _log_power(tried_noise, data)
        by_scale = tried.first_scale * evidence.kernel.first_scale
        by_noise = tried_noise @ evidence.noise_variance + noise.size * np.sum(1 - data.weights) / 2
        return -value, -np.array([by_scale, by_noise])

    limits = [wide if f else (g, g) for f, g, wide in zip(free, given, (PRIOR_SCALES, NOISE_VARIANCES), strict=True)]
    starts = {tuple(s if f else g for f, g, s in zip(free, given, start, strict=True)) for start in STARTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of an ill-conditioned matrix, where not in the end chosen
        found = [
            minimize(misfit, np.log(start), jac=True, method="L-BFGS-B", bounds=np.log(limits), options=PRECISION)
            for start in sorted(starts)
        ]
    return at(min(found, key=lambda one: one.fun).x)


def _log_power(noise: np.ndarray, data: Data) -> float:
    """What weights add to the log evidence: N(y; f, σ²)ʷ is N(y; f, σ²/w) times (2πσ²)^((1−w)/2) / √w."""
    return float(np.sum((1 - data.weights) / 2 * np.log(2 * np.pi * noise) - np.log(data.weights) / 2))


def _some_rows(data: Data, random_state: Any) -> Data:
    """Two numbers are settled well enough by a part of a large table."""
    n_rows = len(data.weights)
    if n_rows <= MOST_ROWS_TO_CHOOSE_BY:
        return data
    return trees.take(data, check_random_state(random_state).permutation(n_rows)[:MOST_ROWS_TO_CHOOSE_BY])
