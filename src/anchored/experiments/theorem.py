"""Theorem 1 beyond a toy: a linear regression where it is exact, and a logistic regression where it is not.

python -m anchored.experiments.theorem --out report

Left, linear regression on the diabetes data with one column twice, so that the data say nothing about one direction:
the error of the covariance of M anchored solutions, beside that of M draws from the posterior itself. Right, logistic
regression on the breast-cancer data, a likelihood that is not Gaussian and for which no exact way of anchoring is
known: anchored solutions found by Newton's method, beside Hamiltonian Monte Carlo.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg
from scipy.special import expit

from anchored.exact.linear_gaussian import LinearGaussian, Normal, cross_validated_kappa
from anchored.types import Array

WARM, GREEN = "#d9722e", "#5a9e6f"  # beside the blues of `plots`


@dataclass(frozen=True)
class Config:
    """What is sampled, and how often."""

    sizes: tuple[int, ...] = (200, 2_000, 20_000)
    n_repeats: int = 20
    noise_variance: float = 0.5  # of the standardised target
    regression_prior_scale: float = 0.2
    kappas: tuple[float, ...] = tuple(np.geomspace(0.1, 1_000, 25).tolist())
    columns: tuple[str, ...] = ("mean radius", "mean texture", "mean smoothness", "mean symmetry")
    logistic_rows: int = 569
    logistic_prior_scale: float = 2.0
    n_members: int = 2_000
    n_chains: int = 4
    n_warmup: int = 500
    n_draws: int = 3_000  # of each chain
    seed: int = 0


def run(config: Config) -> dict[str, Any]:
    """Both parts, and how long they took."""
    started = time.perf_counter()
    return {
        "regression": run_regression(config),
        "logistic": run_logistic(config),
        "seconds": time.perf_counter() - started,
    }


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Ten standardised columns and the third of them, body-mass index, once more; the target standardised too."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return standardised(np.column_stack([X, X[:, 2]])), standardised(y)


def standardised(values: np.ndarray) -> np.ndarray:
    """Mean zero and standard deviation one, column by column."""
    return (values - values.mean(0)) / values.std(0)


def run_regression(config: Config) -> dict[str, Any]:
    """Errors of the covariance by way of anchoring: of the law, and of M solutions, the mean over repeats.

    Cross-validation is done anew for each repeat, with its rows in another order.
    """
    X, y = diabetes()
    prior_covariance = config.regression_prior_scale**2 * np.eye(X.shape[1])
    model = LinearGaussian.regression(X, y, config.noise_variance, prior_covariance)
    posterior, kappa = model.posterior(), model.isotropic_kappa()
    fold_seeds = range(config.n_repeats * config.seed, config.n_repeats * (config.seed + 1))
    chosen = [
        cross_validated_kappa(X, y, config.noise_variance, prior_covariance, config.kappas, seed=seed)
        for seed in fold_seeds
    ]
    # An anchor covariance for each repeat; None stands for anchors from the prior and noise on the targets.
    anchors: dict[str, list[np.ndarray | None]] = {
        "randomized": [None] * config.n_repeats,
        "exact": [model.exact_anchor_covariance()] * config.n_repeats,
        "prior": [prior_covariance] * config.n_repeats,
        "isotropic": [kappa * prior_covariance] * config.n_repeats,
        "cross-validated": [k * prior_covariance for k in chosen],
    }
    ways = {}
    for name, covariances in anchors.items():
        laws = [posterior if c is None else model.anchored_law(c) for c in covariances]
        ratios = [std_ratios(law, posterior) for law in laws]
        ways[name] = {
            "law_error": float(np.mean([posterior.covariance_error(law.covariance) for law in laws])),
            "narrowest": float(np.mean([ratio[0] for ratio in ratios])),
            "widest": float(np.mean([ratio[-1] for ratio in ratios])),
            "errors": [mean_error(model, covariances, size, config.seed) for size in config.sizes],
        }
    return {
        "sizes": config.sizes,
        "ways": ways,
        "perfect": [posterior.perfect_error(size) for size in config.sizes],
        "rank": int(np.linalg.matrix_rank(model.precision)),
        "n_parameters": X.shape[1],
        "kappa": kappa,
        "chosen_kappas": chosen,
        "spread_over_noise": float(np.mean(np.sum(X @ posterior.covariance * X, axis=1)) / config.noise_variance),
    }


def std_ratios(law: Normal, posterior: Normal) -> np.ndarray:
    """Standard deviations over the posterior's, ascending, along the directions in which they differ most and least."""
    return np.sqrt(linalg.eigh(law.covariance, posterior.covariance, eigvals_only=True))


def mean_error(model: LinearGaussian, covariances: list[np.ndarray | None], size: int, seed: int) -> float:
    """The covariance error of `size` solutions, the mean over one set of them for each anchor covariance."""
    posterior = model.posterior()
    draws = (
        model.sample(np.random.default_rng([seed, size, repeat]), size, covariance)
        for repeat, covariance in enumerate(covariances)
    )
    return float(np.mean([posterior.covariance_error(np.cov(draw.T)) for draw in draws]))


def breast_cancer(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """A column of ones and a few standardised ones; the target is one for benign."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    chosen = np.random.default_rng(config.seed).permutation(len(data.target))[: config.logistic_rows]
    columns = [list(data.feature_names).index(name) for name in config.columns]
    X = standardised(data.data[chosen][:, columns])
    return np.column_stack([np.ones(len(X)), X]), data.target[chosen].astype(np.float64)


def run_logistic(config: Config) -> dict[str, Any]:
    """Anchored MAP sampling for p(y = 1) = 1/(1 + exp(−x·θ)), θ ~ N(0, s²I), against Hamiltonian Monte Carlo.

    Σ₀ = Σp + ΣpAΣp takes A, the Fisher information, at the MAP estimate. The same A gives Laplace's approximation.
    """
    X, y = breast_cancer(config)
    size = X.shape[1]
    zeros = np.zeros(size)
    prior_covariance = config.logistic_prior_scale**2 * np.eye(size)
    chains = hamiltonian_monte_carlo(X, y, config)
    centre = anchored_solutions(zeros[None], zeros[None], X, y, config.logistic_prior_scale)[0]
    precision = fisher_information(centre, X)
    # The Gaussian likelihood with the curvature of the true one and the same MAP estimate: h = (Σp⁻¹ + A) θ_MAP.
    information = centre / config.logistic_prior_scale**2 + precision @ centre
    laplace = LinearGaussian(zeros, prior_covariance, precision, information)
    draws = {"Laplace": laplace.posterior().sample(np.random.default_rng(config.seed), config.n_members)}
    for name, covariance in (("prior", prior_covariance), ("exact at MAP", laplace.exact_anchor_covariance())):
        anchors = Normal(zeros, covariance).sample(np.random.default_rng(config.seed), config.n_members)
        starts = laplace.solve(anchors)  # where the solutions would be if the likelihood were Gaussian
        draws[name] = anchored_solutions(starts, anchors, X, y, config.logistic_prior_scale)
    truth = Normal(chains.mean((0, 1)), np.cov(chains.reshape(-1, size).T))
    half = chains[:, : config.n_draws // 2].reshape(-1, size)
    return {
        "names": ("intercept", *config.columns),
        "truth": truth,
        "chains": chains,
        "draws": draws,
        "ways": {name: compare(draw, truth) for name, draw in draws.items()},
        "half_error": truth.covariance_error(np.cov(half.T)),  # of Monte Carlo against itself
        "perfect": truth.perfect_error(config.n_members),
    }


def compare(draws: np.ndarray, truth: Normal) -> dict[str, Any]:
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
        prior = distributions.Normal(0, config.logistic_prior_scale).expand([X.shape[1]]).to_event(1)
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


def tables(results: dict[str, Any]) -> str:
    """The numbers of both parts."""
    regression, logistic = results["regression"], results["logistic"]
    sizes, chosen = regression["sizes"], regression["chosen_kappas"]
    lines = [
        f"linear regression, {regression['n_parameters']} parameters, A of rank {regression['rank']}: "
        "relative error of the covariance, and s.d. over the posterior's along the worst directions",
        f"{'anchors':<18}{'law':>9}" + "".join(f"{f'M = {size:,}':>12}" for size in sizes) + f"{'s.d. ratios':>16}",
    ]
    for name, way in regression["ways"].items():
        errors = "".join(f"{error:>12.4f}" for error in way["errors"])
        lines.append(f"{name:<18}{way['law_error']:>9.4f}{errors}{way['narrowest']:>9.2f} – {way['widest']:.2f}")
    lines.append(f"{'perfect samples':<18}{0:>9.4f}" + "".join(f"{error:>12.4f}" for error in regression["perfect"]))
    lines.append(
        f"isotropic κ = {regression['kappa']:.1f}; cross-validated κ: median {np.median(chosen):.2f}, "
        f"between {min(chosen):.2f} and {max(chosen):.2f} as the rows are reordered\n"
        f"(rows left out hardly tell: the posterior's variance is {regression['spread_over_noise']:.1%} of the noise)"
    )
    lines += [
        "",
        f"logistic regression, {len(logistic['names'])} parameters, against Hamiltonian Monte Carlo",
        f"{'anchors':<18}{'mean off by (s.d.)':>22}{'s.d. ratio':>18}{'covariance':>14}",
    ]
    for name, way in logistic["ways"].items():
        offset, ratio = np.abs(way["mean_offset"]), way["std_ratio"]
        lines.append(
            f"{name:<18}{f'{offset.min():.2f} – {offset.max():.2f}':>22}{f'{ratio.min():.2f} – {ratio.max():.2f}':>18}"
            f"{way['covariance_error']:>14.4f}"
        )
    lines.append(f"{'perfect samples':<18}{'':>40}{logistic['perfect']:>14.4f}")
    lines.append(f"{'half the Monte Carlo':<22}{'':>36}{logistic['half_error']:>14.4f}")
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """The picture: errors against the number of solutions; intervals of the logistic regression's parameters."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), layout="constrained")
    draw_errors(left, results["regression"])
    draw_intervals(right, results["logistic"])
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_errors(ax: Any, regression: dict[str, Any]) -> None:
    """Errors of the covariance against M, on logarithmic axes."""
    from anchored.plots import INK, LINE, MEMBER, REFERENCE

    sizes, ways = regression["sizes"], regression["ways"]
    ax.loglog(sizes, regression["perfect"], **REFERENCE, zorder=3, label="draws from the posterior itself")
    styles = {
        "randomized": ("randomized: anchors from the prior, noisy targets", LINE, "o"),
        "exact": (r"exact: $\Sigma_0 = \Sigma_p + \Sigma_p A\,\Sigma_p$", MEMBER, "D"),
        "prior": (r"anchors from the prior: $\Sigma_0 = \Sigma_p$", INK, "s"),
        "cross-validated": (r"$\Sigma_0 = \kappa\Sigma_p$, $\kappa$ by cross-validation", GREEN, "v"),
        "isotropic": (r"$\Sigma_0 = \kappa\Sigma_p$, $\kappa = 1 + \mathrm{tr}(A\,\Sigma_p)/P$", WARM, "^"),
    }
    for name, (label, colour, marker) in styles.items():
        size = 8 if name == "randomized" else 5  # the two exact ways lie on each other
        face = "white" if name == "exact" else colour
        style = {"color": colour, "marker": marker, "markersize": size, "markerfacecolor": face, "linewidth": 1.6}
        ax.loglog(sizes, ways[name]["errors"], label=label, **style)
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="anchored solutions, M", ylabel="relative error of the covariance")
    ax.set_title("linear regression: exact anchoring samples the posterior", fontsize=11)
    ax.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(0.0, 0.68))


def draw_intervals(ax: Any, logistic: dict[str, Any]) -> None:
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


def main() -> None:
    """Run, print the tables, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = run(Config(seed=arguments.seed))
    path = arguments.out / "theorem.png"
    draw(results, path)
    print(tables(results))
    print(f"picture {path}, {results['seconds']:.0f} s")


if __name__ == "__main__":
    main()
