"""The paper's Theorem 1, corrected: the distribution of anchored solutions in a linear-Gaussian model.

If the likelihood, as a function of the parameters θ, is proportional to the density of N(μ_like, Σ_like), then the MAP
solution with the prior N(θ₀, Σp) is

    θ' = P (Σp⁻¹ θ₀ + h),    P = (Σp⁻¹ + A)⁻¹,    A = Σ_like⁻¹,    h = A μ_like          (eq. 18)

It is affine in the anchor θ₀. If θ₀ is drawn from N(μ, Σ₀), then

    θ' ~ N(μ_post, P Σp⁻¹ Σ₀ Σp⁻¹ P)

This is the posterior N(μ_post, P) if and only if Σ₀ = Σp + Σp A Σp. With anchors from the prior, Σ₀ = Σp, the
covariance is P − P A P, which is too small. It becomes exactly P if noise e ~ N(0, A) is added to h, with a new draw
for each member. A may be singular, as for a design with two equal columns or with fewer rows than parameters, and is
never inverted.

Three equations of the paper's appendix C are misprinted. Eq. 30 should read Σ₀ = Σp C Σp with C = Σp⁻¹ + A. Eq. 31,
for Σp = λ₁I, should read λ₁I + λ₁²A; the printed λ₁³I + λ₁²A is right only for λ₁ = 1. Eq. 33, for
Σ_like ≈ λ₂I, should read (λ₁ + λ₁²/λ₂)I, not (λ₁³ + λ₁²λ₂)I.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution in d dimensions, whose covariance may be singular."""

    mean: np.ndarray  # (d,)
    covariance: np.ndarray  # Σ, (d, d)

    def __post_init__(self) -> None:
        _store(self, "covariance", _semidefinite("covariance", self.covariance))
        _store(self, "mean", _vector("mean", self.mean, len(self.covariance)))

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return `n` draws made with the generator `rng`, shape (n, d)."""
        return self.mean + rng.standard_normal((n, len(self.mean))) @ _square_root(self.covariance)

    def covariance_error(self, covariance: np.ndarray) -> float:
        """Return the relative error ‖`covariance` − Σ‖/‖Σ‖ of another (d, d) covariance, in the Frobenius norm."""
        return float(linalg.norm(covariance - self.covariance) / linalg.norm(self.covariance))

    def expected_covariance_error(self, n: int) -> float:
        """Return √((1 + tr(Σ)²/‖Σ‖²)/n), the root mean square of `covariance_error` for the covariance of `n` draws.

        This holds for the covariance about the true mean. If it is about the mean of the draws, replace n by n − 1.
        """
        n_effective_dimensions = np.trace(self.covariance) ** 2 / np.sum(self.covariance**2)
        return float(np.sqrt((1 + n_effective_dimensions) / n))


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    """A prior N(μ, Σp) and a likelihood exp(−½ θᵀAθ + hᵀθ), with an exact posterior and exact anchored solutions.

    The symbols are those at the top of this module, and d is the number of parameters θ.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored.exact.linear_gaussian import LinearGaussian
    >>> model = LinearGaussian.regression([[1.0], [2.0]], [1.0, 2.0], noise_variance=5.0, prior_covariance=[[1.0]])
    >>> model.posterior().mean, model.posterior().covariance
    (array([0.5]), array([[0.5]]))
    >>> model.anchored_distribution(model.prior_covariance).covariance  # too narrow
    array([[0.25]])
    >>> model.anchored_distribution(model.exact_anchor_covariance()).covariance
    array([[0.5]])
    """

    prior_mean: np.ndarray  # μ, (d,)
    prior_covariance: np.ndarray  # Σp, (d, d), positive definite
    precision: np.ndarray  # A = Σ_like⁻¹, (d, d), positive semi-definite
    information: np.ndarray  # h = A μ_like, (d,)

    def __post_init__(self) -> None:
        covariance = _symmetric("prior_covariance", self.prior_covariance)
        size = len(covariance)
        _store(self, "prior_covariance", covariance)
        _store(self, "prior_mean", _vector("prior_mean", self.prior_mean, size))
        _store(self, "precision", _semidefinite("precision", self.precision, size))
        _store(self, "information", _vector("information", self.information, size))
        _ = self._prior_root  # raises an error now, not when it is first used, if Σp has no Cholesky factor

    @classmethod
    def regression(
        cls,
        design: ArrayLike,
        targets: ArrayLike,
        noise_variance: float,
        prior_covariance: ArrayLike,
        prior_mean: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> "LinearGaussian":
        """Return the model of the linear regression y = Φθ + ε with ε ~ N(0, σ²/w).

        Its likelihood has A = ΦᵀWΦ/σ² and h = ΦᵀWy/σ², where W is the diagonal matrix of the weights w.

        Parameters
        ----------
        design : (rows, d) array
            Φ.
        targets : (rows,) array
            y.
        noise_variance : float
            σ².
        prior_covariance : (d, d) array
            Σp.
        prior_mean : (d,) array, optional
            μ; zero by default.
        weights : (rows,) array, optional
            w; 1 by default.

        Returns
        -------
        LinearGaussian
            The model.
        """
        matrix = np.asarray(design, np.float64)
        if matrix.ndim != 2:
            raise ValueError(f"design must have the shape (rows, parameters), got {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise ValueError("design must be finite; remove or replace NaN and infinity")
        n_rows, n_params = matrix.shape
        values = _vector("targets", targets, n_rows)
        if not (np.ndim(noise_variance) == 0 and np.isfinite(noise_variance) and noise_variance > 0):
            raise ValueError(
                f"noise_variance must be one positive number, got {noise_variance!r}; "
                "for variances that differ between rows, pass weights=noise_variance / variances"
            )
        row_weights = np.ones(n_rows) if weights is None else _vector("weights", weights, n_rows)
        if np.any(row_weights < 0):
            raise ValueError("weights must not be negative; to leave out a row, give it weight zero")
        weighted = matrix.T * (row_weights / noise_variance)
        mean = np.zeros(n_params) if prior_mean is None else prior_mean
        covariance = _symmetric("prior_covariance", prior_covariance, n_params)
        return cls(np.asarray(mean), covariance, weighted @ matrix, weighted @ values)

    def posterior(self) -> Normal:
        """Return the posterior N(μ_post, P), eq. 6 to 8 of the paper."""
        return Normal(self.solve(self.prior_mean[None])[0], self._posterior_covariance)

    def solve(self, anchors: np.ndarray, information: np.ndarray | None = None) -> np.ndarray:
        """Return the solution θ' = P (Σp⁻¹θ₀ + h) for each of n anchors, shape (n, d).

        `anchors` has the shape (n, d). `information` (n, d) holds an h for each anchor; by default, the model's h.
        """
        h = self.information if information is None else information
        return self._apply_shrinkage(np.asarray(anchors).T).T + h @ self._posterior_covariance

    def anchored_distribution(self, anchor_covariance: ArrayLike) -> Normal:
        """Return the distribution of θ' with anchors from N(μ, Σ₀), where Σ₀ = `anchor_covariance` (d, d)."""
        covariance = _semidefinite("anchor_covariance", anchor_covariance, len(self.prior_mean))
        return Normal(self.posterior().mean, _symmetrised(self._apply_shrinkage(self._apply_shrinkage(covariance).T)))

    def exact_anchor_covariance(self) -> np.ndarray:
        """Return Σ₀ = Σp + Σp A Σp (d, d), with which θ' is distributed as the posterior (corrected eq. 30 and 31)."""
        return _symmetrised(self.prior_covariance + self.prior_covariance @ self.precision @ self.prior_covariance)

    def trace_matched_kappa(self) -> float:
        """Return κ = 1 + tr(A Σp)/d for anchors with Σ₀ = κΣp (corrected eq. 33).

        With this κ, Σp⁻¹Σ₀ has the same trace as for the exact Σ₀. In a direction in which the likelihood has β times
        the precision of the prior, the variance of θ' is κ/(1 + β) times that of the posterior. This variance is too
        small if β is above its average over directions, and too large if β is below its average.
        """
        return 1 + float(np.sum(self.precision * self.prior_covariance)) / len(self.prior_mean)

    def sample(self, rng: np.random.Generator, n: int, anchor_covariance: ArrayLike | None = None) -> np.ndarray:
        """Return `n` anchored solutions, shape (n, d).

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of random numbers.
        n : int
            Number of solutions.
        anchor_covariance : (d, d) array, optional
            Σ₀ of the anchors N(μ, Σ₀). If it is None, anchors are drawn from the prior, and h is replaced by h + e
            with a draw e ~ N(0, A) for each solution, which in a regression is noise added to the targets. Solutions
            are then draws from the posterior.

        Returns
        -------
        (n, d) array
            The solutions θ'.
        """
        if anchor_covariance is not None:
            covariance = _semidefinite("anchor_covariance", anchor_covariance, len(self.prior_mean))
            return self.solve(Normal(self.prior_mean, covariance).sample(rng, n))
        anchors = Normal(self.prior_mean, self.prior_covariance).sample(rng, n)
        return self.solve(anchors, Normal(self.information, self.precision).sample(rng, n))

    @cached_property
    def _prior_root(self) -> np.ndarray:
        """The lower triangular matrix L with Σp = LLᵀ."""
        try:
            return linalg.cholesky(self.prior_covariance, lower=True)
        except linalg.LinAlgError:
            raise ValueError(
                "prior_covariance must be positive definite; remove parameters whose prior variance is zero"
            ) from None

    @cached_property
    def _factor(self) -> np.ndarray:
        """The lower triangular matrix R with RRᵀ = I + LᵀAL, a matrix whose eigenvalues are all at least one."""
        root = self._prior_root
        return linalg.cholesky(np.eye(len(root)) + root.T @ self.precision @ root, lower=True)

    @cached_property
    def _posterior_covariance(self) -> np.ndarray:
        """P = L (I + LᵀAL)⁻¹ Lᵀ."""
        half = linalg.solve_triangular(self._factor, self._prior_root.T, lower=True)
        return half.T @ half

    def _apply_shrinkage(self, columns: np.ndarray) -> np.ndarray:
        """Return P Σp⁻¹ times `columns` (d, n). If a column is an anchor, this is its contribution to the solution."""
        whitened = linalg.solve_triangular(self._prior_root, columns, lower=True)
        return self._prior_root @ linalg.cho_solve((self._factor, True), whitened)


def cross_validated_kappa(
    design: ArrayLike,
    targets: ArrayLike,
    noise_variance: float,
    prior_covariance: ArrayLike,
    candidates: Sequence[float],
    n_folds: int = 5,
    seed: int = 0,
) -> float:
    """Choose the κ of Σ₀ = κΣp by cross-validation, as the paper proposes.

    For Σp = λ₁I, the variance of the anchors is κλ₁, which the paper calls λ₃.

    The score is the log density of the targets of held-out rows. The predictive distribution of a row x is normal, with
    variance κ xᵀ P Σp⁻¹ P x + σ².

    Parameters
    ----------
    design, targets, noise_variance, prior_covariance
        As in `LinearGaussian.regression`.
    candidates : sequence of float
        Values of κ to choose from.
    n_folds : int
        Number of cross-validation folds.
    seed : int
        Random seed for the assignment of rows to folds.

    Returns
    -------
    float
        The candidate with the highest score.
    """
    kappas = np.asarray(candidates, np.float64)
    if kappas.ndim != 1 or not kappas.size or not np.isfinite(kappas).all() or np.any(kappas < 0):
        raise ValueError(f"candidates must be a list of finite, non-negative numbers, got {candidates!r}")
    X, y = np.asarray(design, np.float64), np.asarray(targets, np.float64)
    if not 2 <= n_folds <= len(X):
        raise ValueError(f"n_folds must be between 2 and the number of rows, {len(X)}, got {n_folds}")
    LinearGaussian.regression(X, y, noise_variance, prior_covariance)  # checks the arguments
    log_density = np.zeros(len(kappas))
    for held_out in np.array_split(np.random.default_rng(seed).permutation(len(X)), n_folds):
        model = LinearGaussian.regression(
            np.delete(X, held_out, 0), np.delete(y, held_out), noise_variance, prior_covariance
        )
        solutions = model.anchored_distribution(model.prior_covariance)
        residuals = y[held_out] - X[held_out] @ solutions.mean
        variance_between = np.sum(X[held_out] @ solutions.covariance * X[held_out], axis=1)  # for κ = 1
        variance = kappas[:, None] * variance_between + noise_variance
        log_density -= 0.5 * np.sum(np.log(variance) + residuals**2 / variance, axis=1)
    return float(kappas[np.argmax(log_density)])


def _store(instance: object, name: str, value: np.ndarray) -> None:
    """Set a field of a frozen dataclass to an array, which becomes read-only, since cached properties depend on it."""
    value.flags.writeable = False
    object.__setattr__(instance, name, value)


def _vector(name: str, value: ArrayLike, size: int) -> np.ndarray:
    """Check that the argument `name` is a finite vector of `size` numbers, and return its `value` in float64."""
    vector = np.array(value, np.float64)
    if vector.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite; remove or replace NaN and infinity")
    return vector


def _symmetric(name: str, value: ArrayLike, size: int | None = None) -> np.ndarray:
    """Check that the argument `name` is a finite, symmetric matrix, and return its `value` in float64."""
    matrix = np.array(value, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if size is not None and len(matrix) != size:
        raise ValueError(f"{name} must have shape ({size}, {size}), one row for each parameter, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite; remove or replace NaN and infinity")
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise ValueError(f"{name} must be symmetric; if it is asymmetric only by rounding, pass (M + M.T) / 2")
    return _symmetrised(matrix)


def _semidefinite(name: str, value: ArrayLike, size: int | None = None) -> np.ndarray:
    """Check that the argument `name` is a positive semi-definite matrix, and return its `value` in float64."""
    matrix = _symmetric(name, value, size)
    eigenvalues = linalg.eigvalsh(matrix)
    if eigenvalues[0] < -1e-8 * max(eigenvalues[-1], 0):
        raise ValueError(f"{name} must have no negative eigenvalue, got {eigenvalues[0]:.3g}")
    return matrix


def _symmetrised(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric part of `matrix`, which rounding may have made slightly asymmetric."""
    return (matrix + matrix.T) / 2


def _square_root(matrix: np.ndarray) -> np.ndarray:
    """Return the symmetric square root of a positive semi-definite matrix.

    Eigenvalues that rounding has made negative are set to 0.
    """
    eigenvalues, vectors = linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(eigenvalues, 0)) @ vectors.T
