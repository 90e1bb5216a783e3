"""Anchored sampling of a logistic regression, compared with Hamiltonian Monte Carlo.

Its likelihood, on the breast-cancer data, is not normal, so that Theorem 1 does not apply and no exact way of anchoring
is known. Anchored solutions are found by Newton's method.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from anchored.errors import MissingPackageError
from anchored.exact.linear_gaussian import LinearGaussian, Normal
from anchored.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARM, GREEN = "#d9722e", "#5a9e6f"  # in addition to the blues of `plots`


@dataclass(frozen=True)
class Config:
    """Data, prior, and numbers of samples; `columns` has the names of the columns used."""

    columns: tuple[str, ...] = ("mean radius", "mean texture", "mean smoothness", "mean symmetry")
    n_rows: int = 569  # number of rows used, chosen at random
    prior_scale: float = 2.0  # s, prior standard deviation of each parameter
    n_members: int = 2_000  # number of anchored solutions, and of draws of Laplace's approximation
    n_chains: int = 4  # number of chains of Hamiltonian Monte Carlo
    n_warmup: int = 500  # number of warm-up steps of each chain
    n_draws: int = 3_000  # of each chain
    seed: int = 0  # random seed of rows, anchors and draws


class Comparison(TypedDict):
    """How draws of a method differ from the posterior."""

    mean_offset: np.ndarray  # (parameters,), in posterior standard deviations
    std_ratio: np.ndarray  # (parameters,), relative to the posterior standard deviations
    covariance_error: float  # relative


class Results(TypedDict):
    """Draws of each method, and of Hamiltonian Monte Carlo, which serves as the truth."""

    names: tuple[str, ...]  # of the parameters
    truth: Normal
    chains: np.ndarray  # (chains, draws, parameters)
    draws: dict[str, np.ndarray]  # (members, parameters)
    methods: dict[str, Comparison]  # by the names in `draws`
    half_error: float  # relative error of the covariance of the first half of the Monte-Carlo draws against all
    perfect: float  # expected covariance error of as many exact draws as members


def breast_cancer(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return X, a column of ones and the columns of `config`, standardised, and y, 1 for benign and 0 for malignant."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    rows = np.random.default_rng(config.seed).permutation(len(data.target))[: config.n_rows]
    columns = [list(data.feature_names).index(name) for name in config.columns]
    X = data.data[rows][:, columns]
    X = (X - X.mean(0)) / X.std(0)
    return np.column_stack([np.ones(len(X)), X]), data.target[rows].astype(np.float64)


def run(config: Config) -> Results:
    """Compare anchored MAP samples with Hamiltonian Monte Carlo, in the sizes of `config`.

    The model is p(y = 1) = 1/(1 + exp(−x·θ)) with θ ~ N(0, s²I). The anchor covariance is Σ₀ = Σp + ΣpAΣp, with A the
    Fisher information at the MAP estimate; the same A gives Laplace's approximation.
    """
    X, y = breast_cancer(config)
    n_parameters = X.shape[1]
    zeros = np.zeros(n_parameters)
    prior_covariance = config.prior_scale**2 * np.eye(n_parameters)
    chains = hamiltonian_monte_carlo(X, y, config)
    map_estimate = anchored_solutions(zeros[None], zeros[None], X, y, config.prior_scale)[0]
    precision = fisher_information(map_estimate, X)
    # The Gaussian likelihood with the curvature of the true one and the same MAP estimate: h = (Σp⁻¹ + A) θ_MAP.
    information = map_estimate / config.prior_scale**2 + precision @ map_estimate
    laplace = LinearGaussian(zeros, prior_covariance, precision, information)
    draws = {"Laplace": laplace.posterior().sample(np.random.default_rng(config.seed), config.n_members)}
    for name, covariance in (("prior", prior_covariance), ("exact at MAP", laplace.exact_anchor_covariance())):
        anchors = Normal(zeros, covariance).sample(np.random.default_rng(config.seed), config.n_members)
        starts = laplace.solve(anchors)  # where the solutions would be if the likelihood were Gaussian
        draws[name] = anchored_solutions(starts, anchors, X, y, config.prior_scale)
    truth = Normal(chains.mean((0, 1)), np.cov(chains.reshape(-1, n_parameters).T))
    half = chains[:, : config.n_draws // 2].reshape(-1, n_parameters)
    return {
        "names": ("intercept", *config.columns),
        "truth": truth,
        "chains": chains,
        "draws": draws,
        "methods": {name: compare(draw, truth) for name, draw in draws.items()},
        "half_error": truth.covariance_error(np.cov(half.T)),
        "perfect": truth.expected_covariance_error(config.n_members),
    }


def compare(draws: np.ndarray, truth: Normal) -> Comparison:
    """Return how `draws`, (draws, parameters), differ from the posterior `truth`."""
    std = np.sqrt(np.diag(truth.covariance))
    return {
        "mean_offset": (draws.mean(0) - truth.mean) / std,
        "std_ratio": draws.std(0, ddof=1) / std,
        "covariance_error": truth.covariance_error(np.cov(draws.T)),
    }


def negative_log_likelihood(theta: Array, X: Array, y: Array) -> Array:
    """Return −log p(y|θ) for parameters `theta`, (parameters,), rows `X` and targets `y`, 0 or 1."""
    logits = X @ theta
    return jnp.sum(jnp.logaddexp(0, logits) - y * logits)


def anchored_loss(theta: Array, anchor: Array, X: Array, y: Array, prior_scale: Array) -> Array:
    """Return −log p(y|θ) + ½|θ − θ₀|²/s²; θ is `theta`, θ₀ is `anchor`, s is `prior_scale`; `X`, `y` are the data."""
    return negative_log_likelihood(theta, X, y) + 0.5 * jnp.sum((theta - anchor) ** 2) / prior_scale**2


def newton(theta: Array, *problem: Array) -> tuple[Array, Array]:
    """Minimise the anchored loss by Newton's method.

    The loss is convex, but a full step may overshoot, so the best of some halved steps is taken.

    Parameters
    ----------
    theta
        Starting point, (parameters,).
    problem
        The other arguments of `anchored_loss`.

    Returns
    -------
    tuple
        The minimum, and the largest absolute entry of the gradient there.
    """

    def step(_: int, theta: Array) -> Array:
        gradient, curvature = (derivative(anchored_loss)(theta, *problem) for derivative in (jax.grad, jax.hessian))
        direction = jnp.linalg.solve(curvature, gradient)
        trials = theta - 0.5 ** jnp.arange(8)[:, None] * direction
        return trials[jnp.argmin(jax.vmap(lambda trial: anchored_loss(trial, *problem))(trials))]

    theta = jax.lax.fori_loop(0, 15, step, theta)
    return theta, jnp.abs(jax.grad(anchored_loss)(theta, *problem)).max()


newton_for_each_anchor = jax.jit(jax.vmap(newton, (0, 0, None, None, None)))


def anchored_solutions(
    starts: np.ndarray, anchors: np.ndarray, X: np.ndarray, y: np.ndarray, prior_scale: float
) -> np.ndarray:
    """Return the MAP solution for each of `anchors`, (anchors, parameters), by Newton's method from `starts`.

    `X`, `y` and `prior_scale` are as in `anchored_loss`.
    """
    with jax.enable_x64(True):
        solutions, gradients = map(np.asarray, newton_for_each_anchor(starts, anchors, X, y, prior_scale))
    if not gradients.max() < 1e-6:
        raise RuntimeError(
            f"Newton's method did not converge (gradient {gradients.max():.2g}); standardise the columns of X"
        )
    return solutions


def fisher_information(theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return A = Σ p(1 − p) xxᵀ over the rows x of `X`: the Hessian of −log p(y|θ) at `theta`, for any y."""
    probability = expit(X @ theta)
    return (X.T * (probability * (1 - probability))) @ X


def hamiltonian_monte_carlo(X: np.ndarray, y: np.ndarray, config: Config) -> np.ndarray:
    """Return draws by NUTS from the posterior given `X` and `y`, (chains, draws, parameters)."""
    try:
        import numpyro
        from numpyro import distributions, infer
    except ImportError as error:
        raise MissingPackageError("the logistic regression", "numpyro", "compare") from error

    def model() -> None:
        prior = distributions.Normal(0, config.prior_scale).expand([X.shape[1]]).to_event(1)
        theta = numpyro.sample("theta", prior)
        numpyro.sample("y", distributions.Bernoulli(logits=X @ theta), obs=y)

    with jax.enable_x64(True):
        sampler = infer.MCMC(
            infer.NUTS(model),
            num_warmup=config.n_warmup,
            num_samples=config.n_draws,
            num_chains=config.n_chains,
            chain_method="vectorized",
            progress_bar=False,
        )
        sampler.run(jax.random.key(config.seed))
        return np.asarray(sampler.get_samples(group_by_chain=True)["theta"])


def draw_intervals(ax: "Axes", logistic: Results) -> None:
    """Draw central 68 % and 95 % intervals of each parameter in `logistic` into `ax`, in posterior s.d."""
    from anchored.plots import INK, LINE

    truth = logistic["truth"]
    std = np.sqrt(np.diag(truth.covariance))
    draws = {"Hamiltonian Monte Carlo": logistic["chains"].reshape(-1, len(std)), **logistic["draws"]}
    styles = {
        "Hamiltonian Monte Carlo": ("Hamiltonian Monte Carlo", INK),
        "exact at MAP": (r"anchored, $\Sigma_0 = \Sigma_p + \Sigma_p A\,\Sigma_p$", LINE),
        "prior": (r"anchored, $\Sigma_0 = \Sigma_p$", WARM),
        "Laplace": ("Laplace's approximation", GREEN),
    }
    heights = np.arange(len(std))
    for shift, (name, (label, colour)) in zip((-0.27, -0.09, 0.09, 0.27), styles.items(), strict=True):
        scaled = (draws[name] - truth.mean) / std
        for coverage, width in ((0.95, 1.4), (0.68, 4.0)):
            lower, upper = np.quantile(scaled, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
            ax.hlines(heights + shift, lower, upper, color=colour, linewidth=width, alpha=0.9)
        ax.plot(scaled.mean(0), heights + shift, "o", color="white", markeredgecolor=colour, markersize=4.5)
        ax.plot([], [], color=colour, linewidth=3, label=label)
    ax.axvline(0, color="#cccccc", linewidth=0.8, zorder=0)
    ax.set_yticks(heights, logistic["names"])
    ax.invert_yaxis()
    ax.set_ylim(len(std) - 0.5, -1.35)  # room for the legend
    ax.set_xlabel("central 68 % and 95 %, in posterior standard deviations about the mean")
    ax.set_title("logistic regression: close, not exact", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="upper center", ncols=2)
