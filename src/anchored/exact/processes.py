"""Exact Gaussian-process regression.

Let K be the kernel, X the n training rows, * the points to predict at, and y the targets. Let N be the diagonal matrix
of the rows' noise variances, and B = K_*X (K_XX + N)⁻¹. The posterior of the function and the log marginal likelihood
are

    mean B y,    covariance K_** − B K_X*,    log p(y) = −½ yᵀ (K_XX + N)⁻¹ y − ½ log |K_XX + N| − ½ n log 2π.

Outputs are independent and share the kernel. Everything is computed in float64, with Cholesky factors.
"""

import warnings
from dataclasses import dataclass
from typing import Literal, NamedTuple, overload

import jax
import numpy as np
from scipy import linalg

from anchored.exact.kernels import Kernel, diagonal, gram, gram_derivatives
from anchored.types import Array, Number

CHUNK_SIZE = 2048  # rows that are predicted at once, to bound memory
# Smallest and largest number that is added to a diagonal if a factorisation fails, relative to the diagonal's mean
MIN_JITTER, MAX_JITTER = 1e-14, 1e-6


class Factor(NamedTuple):
    """A Cholesky factor of K_XX + N, and the outputs that have this noise N."""

    lower: np.ndarray  # (rows, rows), lower triangular
    columns: np.ndarray  # indices of the outputs


class Evidence(NamedTuple):
    """The log marginal likelihood and its gradient with respect to the hyperparameters (not their logarithms)."""

    value: float  # log p(y), in nats
    kernel_gradient: Kernel  # a pytree like the kernel, with a derivative in place of each hyperparameter
    noise_gradient: np.ndarray  # (outputs,), with respect to the noise variances


@dataclass(frozen=True)
class GaussianProcess:
    """A Gaussian process before data: f ~ GP(0, kernel), y = f(x) + noise."""

    kernel: Kernel
    noise_variance: Number  # σ², one number for all outputs, or (outputs,)

    def condition(self, inputs: Array, targets: Array, weights: Array | None = None) -> "ConditionedProcess":
        """Return the posterior process given data.

        Parameters
        ----------
        inputs : (rows, features) array
            Training inputs.
        targets : (rows, outputs) array
            Training targets.
        weights : (rows,), (rows, 1) or (rows, outputs) array, optional
            Positive numbers w. The noise variance of a row is σ²/w. By default all are 1.

        Returns
        -------
        ConditionedProcess
            The posterior process.
        """
        inputs, targets = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
        noise = _row_noise(self.noise_variance, targets, weights)
        factors = _factors(gram(self.kernel, inputs), noise)
        solved = np.empty_like(targets)
        for lower, columns in factors:
            solved[:, columns] = linalg.cho_solve((lower, True), targets[:, columns])
        return ConditionedProcess(self.kernel, inputs, factors, solved, _log_evidence(factors, solved, targets))

    def log_marginal_likelihood(self, inputs: Array, targets: Array, weights: Array | None = None) -> float:
        """Return log p(y) in nats, summed over outputs. The arguments are those of `condition`."""
        return self.condition(inputs, targets, weights).log_marginal_likelihood

    def evidence(self, inputs: Array, targets: Array, weights: Array | None = None) -> Evidence:
        """Return log p(y), summed over outputs, and its gradient. The arguments are those of `condition`."""
        targets = np.asarray(targets, np.float64)
        conditioned = self.condition(inputs, targets, weights)
        derivatives = gram_derivatives(self.kernel, inputs)
        relative_noise = _row_noise(np.ones_like(self.noise_variance, np.float64), targets, weights)  # ∂N/∂σ²
        kernel_gradient, noise_gradient = jax.tree.map(lambda _: 0.0, derivatives), np.zeros(targets.shape[1])
        for lower, columns in conditioned.factors:
            inverse = linalg.cho_solve((lower, True), np.eye(len(lower)))
            solved = conditioned.solved[:, columns]
            by_matrix = 0.5 * (solved @ solved.T - len(columns) * inverse)  # ∂ log p(y) / ∂(K_XX + N)
            kernel_gradient = jax.tree.map(lambda g, d, m=by_matrix: g + np.sum(m * d), kernel_gradient, derivatives)
            by_row_noise = 0.5 * (solved**2 - np.diag(inverse)[:, None])  # ∂ log p(y) / ∂ diagonal of N, of each output
            noise_gradient[columns] = np.sum(by_row_noise * relative_noise[:, columns], axis=0)
        return Evidence(conditioned.log_marginal_likelihood, kernel_gradient, noise_gradient)

    def sample(self, inputs: Array, n_samples: int, n_outputs: int = 1, seed: int = 0) -> np.ndarray:
        """Return values of `n_samples` functions with `n_outputs` outputs that are drawn from the prior.

        The values at `inputs` (rows, features) have the shape (n_samples, rows, n_outputs). `seed` is the random seed.
        """
        covariance = np.repeat(gram(self.kernel, inputs)[..., None], n_outputs, axis=-1)
        return _draw(np.zeros((len(covariance), n_outputs)), covariance, n_samples, seed)


@dataclass(frozen=True)
class ConditionedProcess:
    """A Gaussian process given data. `predict` and `sample` describe the function, without observation noise."""

    kernel: Kernel  # kernel of the prior
    inputs: np.ndarray  # training inputs, (rows, features)
    factors: list[Factor]  # one for each group of outputs with the same noise
    solved: np.ndarray  # (K_XX + N)⁻¹ y, (rows, outputs)
    log_marginal_likelihood: float  # log p(y) in nats, summed over outputs

    @overload
    def predict(
        self, inputs: Array, return_std: Literal[False] = False, return_cov: Literal[False] = False
    ) -> np.ndarray: ...

    @overload
    def predict(
        self, inputs: Array, return_std: Literal[True], return_cov: Literal[False] = False
    ) -> tuple[np.ndarray, np.ndarray]: ...

    @overload
    def predict(
        self, inputs: Array, return_std: Literal[False] = False, *, return_cov: Literal[True]
    ) -> tuple[np.ndarray, np.ndarray]: ...

    def predict(
        self, inputs: Array, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean, and optionally standard deviations or covariances.

        Parameters
        ----------
        inputs : (rows, features) array
            Inputs to predict at.
        return_std : bool
            Whether to return standard deviations too.
        return_cov : bool
            Whether to return covariances too. It cannot be combined with `return_std`.

        Returns
        -------
        mean : (rows, outputs) array
        std : (rows, outputs) array
            Only if `return_std` is true.
        covariance : (rows, rows, outputs) array
            Only if `return_cov` is true.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be set; choose one")
        inputs = np.asarray(inputs, np.float64)
        if return_cov:
            cross = gram(self.kernel, inputs, self.inputs)
            covariance = np.empty((len(inputs), len(inputs), self.solved.shape[1]))
            prior = gram(self.kernel, inputs)
            for lower, columns in self.factors:
                half = linalg.solve_triangular(lower, cross.T, lower=True)
                covariance[..., columns] = (prior - half.T @ half)[..., None]
            return cross @ self.solved, covariance
        chunks = [self._marginals(rows, return_std) for rows in _chunks(inputs)]
        mean = np.concatenate([chunk[0] for chunk in chunks])
        return (mean, np.sqrt(np.concatenate([chunk[1] for chunk in chunks]))) if return_std else mean

    def sample(self, inputs: Array, n_samples: int, seed: int = 0) -> np.ndarray:
        """Return values of `n_samples` functions that are drawn from the posterior.

        The values at `inputs` (rows, features) have the shape (n_samples, rows, outputs). `seed` is the random seed.
        """
        mean, covariance = self.predict(inputs, return_cov=True)
        return _draw(mean, covariance, n_samples, seed)

    def _marginals(self, rows: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the posterior mean and variance, each (rows, outputs). Variances are 0 if `with_variance` is false."""
        cross = gram(self.kernel, rows, self.inputs)
        variance = np.zeros((len(rows), self.solved.shape[1]))
        if with_variance:
            prior = diagonal(self.kernel, rows)
            for lower, columns in self.factors:
                half = linalg.solve_triangular(lower, cross.T, lower=True)
                # Where the data determine the function, rounding can make a variance slightly negative
                variance[:, columns] = np.maximum(prior - np.sum(half**2, axis=0), 0)[:, None]
        return cross @ self.solved, variance


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of the covariance `matrix` (rows, rows).

    If rounding has made the matrix indefinite, a small number is added to its diagonal, with a RuntimeWarning.

    Raises
    ------
    LinAlgError
        If the matrix holds NaN or infinity, or is not positive definite even after this addition.
    """
    if not np.isfinite(matrix).all():
        raise linalg.LinAlgError(
            f"the covariance of {len(matrix)} rows holds NaN or infinity. Check X and the hyperparameters of the "
            "kernel for values out of range."
        )
    mean_variance = float(np.mean(np.diag(matrix)))
    jitters = np.geomspace(MIN_JITTER, MAX_JITTER, 9)
    for jitter in (0.0, *jitters):
        with_jitter = matrix.copy()
        with_jitter[np.diag_indices_from(with_jitter)] += jitter * mean_variance
        try:
            lower = linalg.cholesky(with_jitter, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        if jitter > 0:
            warnings.warn(
                f"the covariance of the rows is ill-conditioned; {jitter * mean_variance:.1e} was added to its "
                "diagonal. A larger noise_variance avoids this.",
                RuntimeWarning,
                stacklevel=3,
            )
        return lower
    raise linalg.LinAlgError(
        f"the covariance of {len(matrix)} rows is not positive definite, even with {MAX_JITTER:.0e} of its mean "
        "variance added to the diagonal. Raise noise_variance, or check X for values out of range."
    )


def _row_noise(noise_variance: Number, targets: np.ndarray, weights: Array | None) -> np.ndarray:
    """Check the arguments, and return the noise variances σ²/w, shape (rows, outputs)."""
    if targets.ndim != 2:
        raise ValueError(f"targets must have the shape (rows, outputs), got {targets.shape}")
    noise = np.broadcast_to(np.asarray(noise_variance, np.float64), targets.shape)
    if not np.all(np.isfinite(noise) & (noise >= 0)):
        raise ValueError(f"noise_variance must be finite and not negative, got {noise_variance!r}")
    weights = np.ones(len(targets)) if weights is None else np.asarray(weights, np.float64)
    weights = weights[:, None] if weights.ndim == 1 else weights
    if weights.shape not in ((len(targets), 1), targets.shape):
        n_rows = len(targets)
        raise ValueError(
            f"weights must have the shape ({n_rows},), ({n_rows}, 1) or {targets.shape}, got {weights.shape}"
        )
    if not np.all(np.isfinite(weights) & (weights > 0)):
        raise ValueError("weights must be positive; remove rows of weight zero")
    return noise / weights


def _factors(covariance: np.ndarray, noise: np.ndarray) -> list[Factor]:
    """Return the Cholesky factors of `covariance` + N, one for each group of outputs with the same noise.

    `noise` (rows, outputs) holds the diagonals of N.
    """
    unique_noise, group = np.unique(noise, axis=1, return_inverse=True)
    return [
        Factor(cholesky(covariance + np.diag(variances)), np.flatnonzero(group.ravel() == i))
        for i, variances in enumerate(unique_noise.T)
    ]


def _log_evidence(factors: list[Factor], solved: np.ndarray, targets: np.ndarray) -> float:
    """Return log p(y) in nats, summed over outputs, where `solved` is (K_XX + N)⁻¹ y."""
    other_terms = -0.5 * np.sum(targets * solved) - 0.5 * targets.size * np.log(2 * np.pi)
    half_log_determinants = sum(len(columns) * np.sum(np.log(np.diag(lower))) for lower, columns in factors)
    return float(other_terms - half_log_determinants)


def _draw(mean: np.ndarray, covariance: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
    """Return normal draws (n_samples, rows, outputs) with mean (rows, outputs) and covariance (rows, rows, outputs)."""
    normals = np.random.default_rng(seed).standard_normal((n_samples, *mean.shape))
    roots = [covariance_root(covariance[..., k]) for k in range(mean.shape[1])]
    return mean + np.stack([normals[..., k] @ root.T for k, root in enumerate(roots)], axis=-1)


def covariance_root(covariance: np.ndarray) -> np.ndarray:
    """Return the symmetric R with R Rᵀ = `covariance` (rows, rows), which may be singular.

    Rounding errors of the covariance can change the signs of its eigenvectors, but hardly change R, nor draws by it.
    """
    values, vectors = linalg.eigh(covariance)
    return (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T


def _chunks(inputs: np.ndarray) -> list[np.ndarray]:
    """Split the rows into chunks of at most CHUNK_SIZE."""
    return [inputs[start : start + CHUNK_SIZE] for start in range(0, max(1, len(inputs)), CHUNK_SIZE)]
