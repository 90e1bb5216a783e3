"""Theorem 1, corrected: where the likelihood is Gaussian in the parameters, the law of anchored solutions is known.

    θ' = P (Σp⁻¹ θ₀ + h),    P = (Σp⁻¹ + A)⁻¹,    A = Σ_like⁻¹,    h = A μ_like          (eq. 18)

is the MAP solution with the prior N(θ₀, Σp). It is affine in its anchor, so that θ₀ ~ N(μ, Σ₀) gives

    θ' ~ N(μ_post, P Σp⁻¹ Σ₀ Σp⁻¹ P)

which is the posterior N(μ_post, P) if and only if Σ₀ = Σp + Σp A Σp. Anchors from the prior itself, Σ₀ = Σp, fall
short of P by P A P; noise e ~ N(0, A) added to h, one draw a member, makes up for it exactly. A may be singular
(a column twice, fewer rows than parameters) and is never inverted.

Three equations of the paper's appendix C are misprinted. Eq. 30 should read Σ₀ = Σp C Σp with C = Σp⁻¹ + A. Eq. 31,
for Σp = λ₁I, should read λ₁I + λ₁²A; the printed λ₁³I + λ₁²A is right for λ₁ = 1 alone. Eq. 33, for
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
    """N(mean, covariance); the covariance may be singular."""

    mean: np.ndarray  # (P,)
    covariance: np.ndarray  # (P, P)

    def __post_init__(self) -> None:
        _store(self, "covariance", _semidefinite("covariance", self.covariance))
        _store(self, "mean", _vector("mean", self.mean, len(self.covariance)))

    def sample(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Draws, (n, P)."""
        return self.mean + rng.standard_normal((n, len(self.mean))) @ _square_root(self.covariance)

    def covariance_error(self, covariance: np.ndarray) -> float:
        """How far another covariance is from this one: the Frobenius norm of the difference over that of this one."""
        return float(linalg.norm(covariance - self.covariance) / linalg.norm(self.covariance))

    def perfect_error(self, n: int) -> float:
        """√((1 + tr(P)²/‖P‖²)/n): the covariance error, root mean square, of n draws from this very normal."""
        spread = np.trace(self.covariance) ** 2 / np.sum(self.covariance**2)
        return float(np.sqrt((1 + spread) / n))


@dataclass(frozen=True, eq=False)
class LinearGaussian:
    """A prior N(μ, Σp) and a likelihood exp(−½ θᵀAθ + hᵀθ), for which the posterior and anchored solutions are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored.exact.linear_gaussian import LinearGaussian
    >>> model = LinearGaussian.regression([[1.0], [2.0]], [1.0, 2.0], noise_variance=5.0, prior_covariance=[[1.0]])
    >>> model.posterior().mean, model.posterior().covariance
    (array([0.5]), array([[0.5]]))
    >>> model.anchored_law(model.prior_covariance).covariance  # too narrow
    array([[0.25]])
    >>> model.anchored_law(model.exact_anchor_covariance()).covariance
    array([[0.5]])
    """

    prior_mean: np.ndarray  # μ, (P,)
    prior_covariance: np.ndarray  # Σp, (P, P), positive definite
    precision: np.ndarray  # A = Σ_like⁻¹, (P, P), positive semi-definite
    information: np.ndarray  # h = A μ_like, (P,)

    def __post_init__(self) -> None:
        covariance = _symmetric("prior_covariance", self.prior_covariance)
        size = len(covariance)
        _store(self, "prior_covariance", covariance)
        _store(self, "prior_mean", _vector("prior_mean", self.prior_mean, size))
        _store(self, "precision", _semidefinite("precision", self.precision, size))
        _store(self, "information", _vector("information", self.information, size))
        _ = self._root  # a prior that has no Cholesky factor is refused here, not at first use

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
        """y = Φθ + ε with ε ~ N(0, σ²/w) row by row: A = ΦᵀWΦ/σ², h = ΦᵀWy/σ². By default the prior has mean 0."""
        matrix = np.asarray(design, np.float64)
        if matrix.ndim != 2:
            raise ValueError(f"design must be a matrix with one row an observation, got shape {matrix.shape}")
        if not np.isfinite(matrix).all():
            raise ValueError("design must be finite; drop or fill the rows with NaN or infinity")
        rows, size = matrix.shape
        values = _vector("targets", targets, rows)
        if not (np.ndim(noise_variance) == 0 and np.isfinite(noise_variance) and noise_variance > 0):
            raise ValueError(
                f"noise_variance must be one positive number, got {noise_variance!r}; "
                "give variances row by row as weights noise_variance / variance"
            )
        row_weights = np.ones(rows) if weights is None else _vector("weights", weights, rows)
        if np.any(row_weights < 0):
            raise ValueError("weights must not be negative; leave a row out with weight zero")
        weighted = matrix.T * (row_weights / noise_variance)
        mean = np.zeros(size) if prior_mean is None else prior_mean
        covariance = _symmetric("prior_covariance", prior_covariance, size)
        return cls(np.asarray(mean), covariance, weighted @ matrix, weighted @ values)

    def posterior(self) -> Normal:
        """N(μ_post, P), eq. 6 to 8."""
        return Normal(self.solve(self.prior_mean[None])[0], self._posterior_covariance)

    def solve(self, anchors: np.ndarray, information: np.ndarray | None = None) -> np.ndarray:
        """θ' = P (Σp⁻¹θ₀ + h) for each row of anchors, (n, P); with `information`, each row has an h of its own."""
        h = self.information if information is None else information
        return self._carry(np.asarray(anchors).T).T + h @ self._posterior_covariance

    def anchored_law(self, anchor_covariance: ArrayLike) -> Normal:
        """The law of θ' with anchors from N(μ, Σ₀): mean μ_post, covariance P Σp⁻¹ Σ₀ Σp⁻¹ P."""
        covariance = _semidefinite("anchor_covariance", anchor_covariance, len(self.prior_mean))
        return Normal(self.posterior().mean, _symmetrised(self._carry(self._carry(covariance).T)))

    def exact_anchor_covariance(self) -> np.ndarray:
        """Σ₀ = Σp + Σp A Σp, with which θ' has the law of the posterior: eq. 30 and 31 put right."""
        return _symmetrised(self.prior_covariance + self.prior_covariance @ self.precision @ self.prior_covariance)

    def isotropic_kappa(self) -> float:
        """κ = 1 + tr(A Σp)/P, so that Σ₀ = κΣp has the trace of the exact one in the prior's units: eq. 33 put right.

        Where the data say β times as much as the prior, θ' has κ/(1 + β) times the posterior's variance: too little
        in directions of which the data say more than on average, too much in those of which they say less.
        """
        return 1 + float(np.sum(self.precision * self.prior_covariance)) / len(self.prior_mean)

    def sample(self, rng: np.random.Generator, n: int, anchor_covariance: ArrayLike | None = None) -> np.ndarray:
        """Anchored solutions, (n, P), with anchors from N(μ, Σ₀).

        Without an anchor covariance they are randomized: anchors from the prior, and h + e with e ~ N(0, A), which for
        a regression is noise on the targets. Their law is the posterior.
        """
        if anchor_covariance is not None:
            covariance = _semidefinite("anchor_covariance", anchor_covariance, len(self.prior_mean))
            return self.solve(Normal(self.prior_mean, covariance).sample(rng, n))
        anchors = Normal(self.prior_mean, self.prior_covariance).sample(rng, n)
        return self.solve(anchors, Normal(self.information, self.precision).sample(rng, n))

    @cached_property
    def _root(self) -> np.ndarray:
        """L with Σp = LLᵀ."""
        try:
            return linalg.cholesky(self.prior_covariance, lower=True)
        except linalg.LinAlgError:
            raise ValueError(
                "prior_covariance must be positive definite; leave parameters that the prior fixes out of the model"
            ) from None

    @cached_property
    def _factor(self) -> np.ndarray:
        """R with I + LᵀAL = RRᵀ, the posterior's precision in the prior's units: no eigenvalue is below one."""
        return linalg.cholesky(np.eye(len(self._root)) + self._root.T @ self.precision @ self._root, lower=True)

    @cached_property
    def _posterior_covariance(self) -> np.ndarray:
        """P = L (I + LᵀAL)⁻¹ Lᵀ."""
        half = linalg.solve_triangular(self._factor, self._root.T, lower=True)
        return half.T @ half

    def _carry(self, columns: np.ndarray) -> np.ndarray:
        """P Σp⁻¹ times columns."""
        whitened = linalg.solve_triangular(self._root, columns, lower=True)
        return self._root @ linalg.cho_solve((self._factor, True), whitened)


def cross_validated_kappa(
    design: ArrayLike,
    targets: ArrayLike,
    noise_variance: float,
    prior_covariance: ArrayLike,
    candidates: Sequence[float],
    n_folds: int = 5,
    seed: int = 0,
) -> float:
    """The κ of Σ₀ = κΣp under which rows left out are most probable, as the paper proposes for its λ₃ = κλ₁.

    Their predictive normals have the variance of the anchored law, xᵀ P Σp⁻¹ κΣp Σp⁻¹ P x, and that of the noise.
    """
    kappas = np.asarray(candidates, np.float64)
    if kappas.ndim != 1 or not kappas.size or not np.isfinite(kappas).all() or np.any(kappas < 0):
        raise ValueError(f"candidates must be a list of finite numbers, none negative, got {candidates!r}")
    X, y = np.asarray(design, np.float64), np.asarray(targets, np.float64)
    if not 2 <= n_folds <= len(X):
        raise ValueError(f"n_folds must lie between 2 and the number of rows, {len(X)}, got {n_folds}")
    LinearGaussian.regression(X, y, noise_variance, prior_covariance)  # checks what is given, before rows are left out
    log_density = np.zeros(len(kappas))
    for held_out in np.array_split(np.random.default_rng(seed).permutation(len(X)), n_folds):
        model = LinearGaussian.regression(
            np.delete(X, held_out, 0), np.delete(y, held_out), noise_variance, prior_covariance
        )
        law = model.anchored_law(model.prior_covariance)
        residuals = y[held_out] - X[held_out] @ law.mean
        spread = np.sum(X[held_out] @ law.covariance * X[held_out], axis=1)
        variance = kappas[:, None] * spread + noise_variance
        log_density -= 0.5 * np.sum(np.log(variance) + residuals**2 / variance, axis=1)
    return float(kappas[np.argmax(log_density)])


def _store(instance: object, name: str, value: np.ndarray) -> None:
    """Set a checked copy on a frozen dataclass; read-only, for other values are derived from it and kept."""
    value.flags.writeable = False
    object.__setattr__(instance, name, value)


def _vector(name: str, value: ArrayLike, size: int) -> np.ndarray:
    vector = np.array(value, np.float64)
    if vector.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {vector.shape}")
    if not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite; drop or fill the entries with NaN or infinity")
    return vector


def _symmetric(name: str, value: ArrayLike, size: int | None = None) -> np.ndarray:
    matrix = np.array(value, np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise ValueError(f"{name} must be a square matrix, got shape {matrix.shape}")
    if size is not None and len(matrix) != size:
        raise ValueError(f"{name} must have shape ({size}, {size}), one row a parameter, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite; it holds NaN or infinity")
    if np.abs(matrix - matrix.T).max() > 1e-8 * np.abs(matrix).max():
        raise ValueError(f"{name} must be symmetric; give (M + M.T) / 2 where rounding made it lopsided")
    return _symmetrised(matrix)


def _semidefinite(name: str, value: ArrayLike, size: int | None = None) -> np.ndarray:
    matrix = _symmetric(name, value, size)
    eigenvalues = linalg.eigvalsh(matrix)
    if eigenvalues[0] < -1e-8 * max(eigenvalues[-1], 0):
        raise ValueError(f"{name} must have no negative eigenvalue, got {eigenvalues[0]:.3g}")
    return matrix


def _symmetrised(matrix: np.ndarray) -> np.ndarray:
    return (matrix + matrix.T) / 2


def _square_root(matrix: np.ndarray) -> np.ndarray:
    """The symmetric root, which singular matrices have too; eigenvalues that rounding left below zero are zero."""
    eigenvalues, vectors = linalg.eigh(matrix)
    return vectors * np.sqrt(np.maximum(eigenvalues, 0)) @ vectors.T
