"""Anchored sampling where the likelihood is not normal, beside Hamiltonian Monte Carlo: the theorem's other half.

Logistic regression on the breast-cancer data. No exact way of anchoring is known for it; anchored solutions are found
by Newton's method.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from anchored.exact.linear_gaussian import LinearGaussian, Normal
from anchored.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARM, GREEN = "#d9722e", "#5a9e6f"  # beside the blues of `plots`


@dataclass(frozen=True)
class Config:
    """What is sampled, and how often."""

    columns: tuple[str, ...] = ("mean radius", "mean texture", "mean smoothness", "mean symmetry")
    n_rows: int = 569
    prior_scale: float = 2.0
    n_members: int = 2_000
    n_chains: int = 4
    n_warmup: int = 500
    n_draws: int = 3_000  # of each chain
    seed: int = 0


class Comparison(TypedDict):
    """Draws beside the truth, for each parameter: (parameters,) arrays, and the error of the whole covariance."""

    mean_offset: np.ndarray  # in standard deviations of the truth
    std_ratio: np.ndarray
    covariance_error: float


class Results(TypedDict):
    """Draws of each way of sampling beside Monte Carlo's, which is the truth."""

    names: tuple[str, ...]  # of the parameters
    truth: Normal
    chains: np.ndarray  # (chains, draws, parameters)
    draws: dict[str, np.ndarray]  # (members, parameters)
    ways: dict[str, Comparison]
    half_error: float  # of half the Monte Carlo against all of it
    perfect: float  # of as many perfect draws as members


def breast_cancer(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """A column of ones and a few standardised ones; the target is one for benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    chosen = np.random.default_rng(config.seed).permutation(len(data.target))[: config.n_rows]
    columns = [list(data.feature_names).index(name) for name in config.columns]
    X = data.data[chosen][:, columns]
    X = (X - X.mean(0)) / X.std(0)
    return np.column_stack([np.ones(len(X)), X]), data.target[chosen].astype(np.float64)


def run(config: Config) -> Results:
    """Anchored MAP sampling for p(y = 1) = 1/(1 + exp(−x·θ)), θ ~ N(0, s²I), against Hamiltonian Monte Carlo.

    Σ₀ = Σp + ΣpAΣp takes A, the Fisher information, at the MAP estimate. The same A gives Laplace's approximation.
    """
    X, y = breast_cancer(config)
    size = X.shape[1]
    zeros = np.zeros(size)
    prior_covariance = config.prior_scale**2 * np.eye(size)
    chains = hamiltonian_monte_carlo(X, y, config)
    centre = anchored_solutions(zeros[None], zeros[None], X, y, config.prior_scale)[0]
    precision = fisher_information(centre, X)
    # The Gaussian likelihood with the curvature of the true one and the same MAP estimate: h = (Σp⁻¹ + A) θ_MAP.
    information = centre / config.prior_scale**2 + precision @ centre
    laplace = LinearGaussian(zeros, prior_covariance, precision, information)
    draws = {"Laplace": laplace.posterior().sample(np.random.default_rng(config.seed), config.n_members)}
    for name, covariance in (("prior", prior_covariance), ("exact at MAP", laplace.exact_anchor_covariance())):
        anchors = Normal(zeros, covariance).sample(np.random.default_rng(config.seed), config.n_members)
        starts = laplace.solve(anchors)  # where the solutions would be if the likelihood were Gaussian
        draws[name] = anchored_solutions(starts, anchors, X, y, config.prior_scale)
    truth = Normal(chains.mean((0, 1)), np.cov(chains.reshape(-1, size).T))
    half = chains[:, : config.n_draws // 2].reshape(-1, size)
    return {
        "names": ("intercept", *config.columns),
        "truth": truth,
        "chains": chains,
        "draws": draws,
        "ways": {name: compare(draw, truth) for name, draw in draws.items()},
        "half_error": truth.covariance_error(np.cov(half.T)),
        "perfect": truth.perfect_error(config.n_members),
    }


def compare(draws: np.ndarray, truth: Normal) -> Comparison:
    """Mean (in standard deviations of the truth), ratio of standard deviations, error of the covariance."""
    std = np.sqrt(np.diag(truth.covariance))
    return {
        "mean_offset": (draws.mean(0) - truth.mean) / std,
        "std_ratio": draws.std(0, ddof=1) / std,
        "covariance_error": truth.covariance_error(np.cov(draws.T)),
    }


def misfit(theta: Array, X: Array, y: Array) -> Array:
    """−log p(y|θ)."""
    logits = X @ theta
    return jnp.sum(jnp.logaddexp(0, logits) - y * logits)


def anchored_loss(theta: Array, anchor: Array, X: Array, y: Array, prior_scale: Array) -> Array:
    """−log p(y|θ) + ½|θ − θ₀|²/s²."""
    return misfit(theta, X, y) + 0.5 * jnp.sum((theta - anchor) ** 2) / prior_scale**2


def newton(theta: Array, *problem: Array) -> tuple[Array, Array]:
    """The minimum of the anchored loss, and the largest entry of its gradient there.

    The loss is convex, but a full step may overshoot: the best of a few halvings is taken.
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
    """The MAP solution for each anchor, (n, P)."""
    with jax.enable_x64(True):
        solutions, gradients = map(np.asarray, newton_for_each_anchor(starts, anchors, X, y, prior_scale))
    if not gradients.max() < 1e-6:
        raise RuntimeError(f"Newton's method left a gradient of {gradients.max():.2g}; standardise the columns of X")
    return solutions


def fisher_information(theta: np.ndarray, X: np.ndarray) -> np.ndarray:
    """A = Σ p(1 − p) xxᵀ, the curvature of the misfit, whatever the targets."""
    probability = expit(X @ theta)
    return (X.T * (probability * (1 - probability))) @ X


def hamiltonian_monte_carlo(X: np.ndarray, y: np.ndarray, config: Config) -> np.ndarray:
    """Draws from the posterior of the logistic regression by NUTS, (chains, draws, parameters)."""
    try:
        import numpyro
        from numpyro import distributions, infer
    except ImportError as error:
        raise ImportError("the logistic part needs numpyro: pip install 'anchored[compare]'") from error

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
    """For each parameter the central 68 % and 95 %, about Monte Carlo's mean and in its standard deviations."""
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
    places = np.arange(len(std))
    for shift, (name, (label, colour)) in zip((-0.27, -0.09, 0.09, 0.27), styles.items(), strict=True):
        scaled = (draws[name] - truth.mean) / std
        for coverage, width in ((0.95, 1.4), (0.68, 4.0)):
            lower, upper = np.quantile(scaled, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
            ax.hlines(places + shift, lower, upper, color=colour, linewidth=width, alpha=0.9)
        ax.plot(scaled.mean(0), places + shift, "o", color="white", markeredgecolor=colour, markersize=4.5)
        ax.plot([], [], color=colour, linewidth=3, label=label)
    ax.axvline(0, color="#cccccc", linewidth=0.8, zorder=0)
    ax.set_yticks(places, logistic["names"])
    ax.invert_yaxis()
    ax.set_ylim(len(std) - 0.5, -1.35)  # room for the legend
    ax.set_xlabel("central 68 % and 95 %, in posterior standard deviations about the mean")
    ax.set_title("logistic regression: close, not exact", fontsize=11)
    ax.legend(frameon=False, fontsize=8.5, loc="upper center", ncols=2)
