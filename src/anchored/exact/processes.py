"""Exact Gaussian-process regression.

Let K be the kernel, X the n training rows, * the points to predict at, y the targets, N the diagonal matrix of the
rows' noise variances and B = K_*X (K_XX + N)⁻¹. The posterior of the function, and the log marginal likelihood, are

    mean B y,    covariance K_** − B K_X*,    log p(y) = −½ yᵀ (K_XX + N)⁻¹ y − ½ log |K_XX + N| − ½ n log 2π.

Outputs are independent and share the kernel. Everything is computed by Cholesky factors in float64.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import linalg

from anchored.exact.kernels import Kernel, diagonal, gram, gram_derivatives
from anchored.types import Array, Number

CHUNK_SIZE = 2048  # rows predicted at once, to bound memory
MIN_JITTER, MAX_JITTER = 1e-14, 1e-6  # added to the diagonal of a covariance, relative to the diagonal's mean


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
    noise_variance: Number  # one for all outputs, or (outputs,)

    def condition(self, inputs: Array, targets: Array, weights: Array | None = None) -> "ConditionedProcess":
        """Return the posterior process given data.

        Parameters
        ----------
        inputs : (rows, features) array
            Training inputs.
        targets : (rows, outputs) array
            Training targets.
        weights : (rows,), (rows, 1) or (rows, outputs) array, optional
            Positive numbers that divide the noise variances; 1 by default.

        Returns
        -------
        ConditionedProcess
            The posterior.
        """
        inputs, targets = np.asarray(inputs, np.float64), np.asarray(targets, np.float64)
        noise = _row_noise(self.noise_variance, targets, weights)
        factors = _factors(gram(self.kernel, inputs), noise)
        solved = np.empty_like(targets)
        for lower, columns in factors:
            solved[:, columns] = linalg.cho_solve((lower, True), targets[:, columns])
        return ConditionedProcess(self.kernel, inputs, factors, solved, _log_evidence(factors, solved, targets))

    def log_marginal_likelihood(self, inputs: Array, targets: Array, weights: Array | None = None) -> float:
        """Return log p(y) in nats, summed over outputs; `inputs`, `targets` and `weights` are as in `condition`."""
        return self.condition(inputs, targets, weights).log_marginal_likelihood

    def evidence(self, inputs: Array, targets: Array, weights: Array | None = None) -> Evidence:
        """Return log p(y), summed over outputs, and its gradient.

        `inputs`, `targets` and `weights` are as in `condition`.
        """
        targets = np.asarray(targets, np.float64)
        conditioned = self.condition(inputs, targets, weights)
        derivatives = gram_derivatives(self.kernel, inputs)
        relative_noise = _row_noise(np.ones_like(self.noise_variance, np.float64), targets, weights)  # ∂N/∂σ²
        by_kernel, by_noise = jax.tree.map(lambda _: 0.0, derivatives), np.zeros(targets.shape[1])  # gradients
        for lower, columns in conditioned.factors:
            inverse = linalg.cho_solve((lower, True), np.eye(len(lower)))
            solved = conditioned.solved[:, columns]
            slope = 0.5 * (solved @ solved.T - len(columns) * inverse)  # ∂ log p(y) / ∂(K_XX + N)
            by_kernel = jax.tree.map(lambda total, d, s=slope: total + np.sum(s * d), by_kernel, derivatives)
            noise_slope = 0.5 * (solved**2 - np.diag(inverse)[:, None])  # ∂ log p(y) / ∂ diagonal of N, for each output
            by_noise[columns] = np.sum(noise_slope * relative_noise[:, columns], axis=0)
        return Evidence(conditioned.log_marginal_likelihood, by_kernel, by_noise)

    def sample(self, inputs: Array, n_samples: int, n_outputs: int = 1, seed: int = 0) -> np.ndarray:
        """Draw `n_samples` functions with `n_outputs` outputs from the prior.

        Return their values at `inputs` (rows, features), an array of shape (samples, rows, outputs). `seed` fixes the
        random numbers.
        """
        covariance = np.repeat(gram(self.kernel, inputs)[..., None], n_outputs, axis=-1)
        return _draw(np.zeros((len(covariance), n_outputs)), covariance, n_samples, seed)


@dataclass(frozen=True)
class ConditionedProcess:
    """A Gaussian process given data. `predict` and `sample` describe the function, without observation noise."""

    kernel: Kernel  # of the prior
    inputs: np.ndarray  # (rows, features)
    factors: list[Factor]  # one for each group of outputs with the same noise
    solved: np.ndarray  # (K_XX + N)⁻¹ y, (rows, outputs)
    log_marginal_likelihood: float  # of the data, summed over outputs

    def predict(self, inputs: Array, return_std: bool = False, return_cov: bool = False) -> Any:
        """Return the posterior mean, and optionally standard deviations or covariances.

        Parameters
        ----------
        inputs : (rows, features) array
            Inputs to predict at.
        return_std : bool
            Whether to return standard deviations too.
        return_cov : bool
            Whether to return covariances too; cannot be combined with `return_std`.

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
        """Draw `n_samples` functions from the posterior.

        Return their values at `inputs` (rows, features), an array of shape (samples, rows, outputs). `seed` fixes the
        random numbers.
        """
        mean, covariance = self.predict(inputs, return_cov=True)
        return _draw(mean, covariance, n_samples, seed)

    def _marginals(self, rows: np.ndarray, with_variance: bool) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of each row and output; the variance is zero unless `with_variance` is true."""
        cross = gram(self.kernel, rows, self.inputs)
        variance = np.zeros((len(rows), self.solved.shape[1]))
        if with_variance:
            prior = diagonal(self.kernel, rows)
            for lower, columns in self.factors:
                half = linalg.solve_triangular(lower, cross.T, lower=True)
                # Rounding can make a variance slightly negative where the data determine the function
                variance[:, columns] = np.maximum(prior - np.sum(half**2, axis=0), 0)[:, None]
        return cross @ self.solved, variance


def cholesky(matrix: np.ndarray) -> np.ndarray:
    """Return the lower Cholesky factor of a covariance matrix.

    If rounding has made `matrix` (rows, rows) indefinite, a small number is added to its diagonal, with a
    RuntimeWarning.

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
        shifted = matrix.copy()
        shifted[np.diag_indices_from(shifted)] += jitter * mean_variance
        try:
            lower = linalg.cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        if jitter > 0:
            warnings.warn(
                f"the covariance of the rows is ill-conditioned; {jitter * mean_variance:.1e} was added to its "
                "diagonal. A larger noise_variance avoids that.",
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
    """The Cholesky factors of `covariance` + N, one for each group of outputs with the same `noise` (rows, outputs)."""
    unique_noise, group = np.unique(noise, axis=1, return_inverse=True)
    return [
        Factor(cholesky(covariance + np.diag(variances)), np.flatnonzero(group.ravel() == i))
        for i, variances in enumerate(unique_noise.T)
    ]


def _log_evidence(factors: list[Factor], solved: np.ndarray, targets: np.ndarray) -> float:
    """log p(y) in nats, summed over outputs; `solved` is (K_XX + N)⁻¹ y."""
    other_terms = -0.5 * np.sum(targets * solved) - 0.5 * targets.size * np.log(2 * np.pi)
    half_log_determinant = sum(len(columns) * np.sum(np.log(np.diag(lower))) for lower, columns in factors)
    return float(other_terms - half_log_determinant)


def _draw(mean: np.ndarray, covariance: np.ndarray, n_samples: int, seed: int) -> np.ndarray:
    """Draws (samples, rows, outputs) with mean (rows, outputs) and covariance (rows, rows, outputs)."""
    normal = np.random.default_rng(seed).standard_normal((n_samples, *mean.shape))
    roots = [covariance_root(covariance[..., k]) for k in range(mean.shape[1])]
    return mean + np.stack([normal[..., k] @ root.T for k, root in enumerate(roots)], axis=-1)


def covariance_root(covariance: np.ndarray) -> np.ndarray:
    """Return a matrix R with R Rᵀ = `covariance` (rows, rows), which may be singular, unlike for a Cholesky factor."""
    values, vectors = linalg.eigh(covariance)
    return vectors * np.sqrt(np.maximum(values, 0))


def _chunks(inputs: np.ndarray) -> list[np.ndarray]:
    """Split the rows into chunks of at most CHUNK_SIZE."""
    return [inputs[start : start + CHUNK_SIZE] for start in range(0, max(1, len(inputs)), CHUNK_SIZE)]
