"""Figure 8: Bayesian inference by anchored MAP estimates, in two dimensions, with the paper's eq. 31 and 33 put right.

python -m anchored.experiments.figure_8 --out report
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchored.exact.linear_gaussian import LinearGaussian, Normal

WARM, GREEN, GREY = "#d9722e", "#5a9e6f", "#888888"  # beside the blues of `plots`


@dataclass(frozen=True)
class Config:
    """A correlated likelihood, and an isotropic prior λ₁I whose variance is not one, so that eq. 31 shows its error."""

    prior_variance: float = 2.0  # λ₁
    likelihood_mean: tuple[float, float] = (1.6, 1.2)
    likelihood_std: tuple[float, float] = (1.3, 0.9)
    likelihood_correlation: float = -0.6
    n_samples: int = 150
    seed: int = 0


def likelihood(config: Config) -> Normal:
    """N(μ_like, Σ_like)."""
    std = np.array(config.likelihood_std)
    correlation = np.array([[1, config.likelihood_correlation], [config.likelihood_correlation, 1]])
    return Normal(np.array(config.likelihood_mean), correlation * np.outer(std, std))


def problem(config: Config, prior_variance: float) -> LinearGaussian:
    """The toy: here, and only here, Σ_like is known to be regular and is inverted."""
    like = likelihood(config)
    precision = np.linalg.inv(like.covariance)
    return LinearGaussian(np.zeros(2), prior_variance * np.eye(2), precision, precision @ like.mean)


def printed_equation_31(prior_variance: float, precision: np.ndarray) -> np.ndarray:
    """λ₁³I + λ₁²Σ_like⁻¹, as the paper has it. Right is λ₁I + λ₁²Σ_like⁻¹."""
    return prior_variance**3 * np.eye(len(precision)) + prior_variance**2 * precision


def printed_equation_33(prior_variance: float, precision: np.ndarray) -> np.ndarray:
    """(λ₁³ + λ₁²λ₂)I, as the paper has it, with 1/λ₂ the mean of the precision's diagonal. Right is (λ₁ + λ₁²/λ₂)I."""
    likelihood_variance = len(precision) / np.trace(precision)
    return (prior_variance**3 + prior_variance**2 * likelihood_variance) * np.eye(len(precision))


def run(config: Config) -> dict[str, Any]:
    """Sample with each anchor covariance, from the same random numbers, and measure the covariances against P."""
    toy, unit = problem(config, config.prior_variance), problem(config, 1.0)
    cases = {
        "exact": (toy, toy.exact_anchor_covariance()),
        "isotropic": (toy, toy.isotropic_kappa() * toy.prior_covariance),
        "printed_31": (toy, printed_equation_31(config.prior_variance, toy.precision)),
        "printed_33": (toy, printed_equation_33(config.prior_variance, toy.precision)),
        "printed_31_unit_prior": (unit, printed_equation_31(1.0, unit.precision)),
    }
    return {
        "prior": Normal(toy.prior_mean, toy.prior_covariance),
        "likelihood": likelihood(config),
        "posterior": toy.posterior(),
        "n_samples": config.n_samples,
        "cases": {name: measure(model, covariance, config) for name, (model, covariance) in cases.items()},
    }


def measure(model: LinearGaussian, anchor_covariance: np.ndarray, config: Config) -> dict[str, Any]:
    """Samples and their law, and the errors of the law, of the samples, and of as many perfect samples."""
    posterior, law = model.posterior(), model.anchored_law(anchor_covariance)
    samples = model.sample(np.random.default_rng(config.seed), config.n_samples, anchor_covariance)
    return {
        "prior_variance": model.prior_covariance[0, 0],
        "samples": samples,
        "law": law,
        "law_error": posterior.covariance_error(law.covariance),
        "sample_error": posterior.covariance_error(np.cov(samples.T)),
        "perfect_error": posterior.perfect_error(config.n_samples),
    }


def table(results: dict[str, Any]) -> str:
    """The errors, one row an anchor covariance."""
    names = {
        "exact": "exact, λ₁I + λ₁²Σ_like⁻¹",
        "isotropic": "isotropic, (λ₁ + λ₁²/λ₂)I",
        "printed_31": "printed eq. 31, λ₁³I + λ₁²Σ_like⁻¹",
        "printed_33": "printed eq. 33, (λ₁³ + λ₁²λ₂)I",
        "printed_31_unit_prior": "printed eq. 31, where λ₁ = 1",
    }
    header = f"{'anchor covariance':<36}{'λ₁':>5}{'law':>9}{'samples':>9}{'perfect':>9}"
    lines = [f"relative error of the covariance, {results['n_samples']} samples", header]
    for name, case in results["cases"].items():
        errors = (case["law_error"], case["sample_error"], case["perfect_error"])
        lines.append(f"{names[name]:<36}{case['prior_variance']:>5.1f}" + "".join(f"{error:>9.1%}" for error in errors))
    return "\n".join(lines)


def draw(results: dict[str, Any], path: Path) -> None:
    """The picture: what is given, then samples over the posterior for three anchor covariances."""
    import matplotlib.pyplot as plt

    from anchored.plots import INK, LINE, MEMBER

    figure, axes = plt.subplots(1, 4, figsize=(14, 4.3), layout="constrained", sharex=True, sharey=True)
    posterior = results["posterior"]
    for name, colour in (("prior", GREY), ("likelihood", GREEN), ("posterior", LINE)):
        contours(axes[0], results[name], colour, name)
    axes[0].set_title(rf"given, $\lambda_1 = {results['cases']['exact']['prior_variance']:g}$", fontsize=11)
    axes[0].set_xlabel("contours of 1 and 2 standard deviations", fontsize=9, color=INK)
    axes[0].legend(loc="upper left", frameon=False, fontsize=9)
    titles = {
        "exact": ("exact anchors", r"$\lambda_1 I + \lambda_1^2\,\Sigma_{like}^{-1}$"),
        "isotropic": ("isotropic anchors", r"$(\lambda_1 + \lambda_1^2/\lambda_2)\,I$"),
        "printed_31": ("eq. 31 as printed", r"$\lambda_1^3 I + \lambda_1^2\,\Sigma_{like}^{-1}$"),
    }
    for ax, (name, (title, formula)) in zip(axes[1:], titles.items(), strict=True):
        case = results["cases"][name]
        ax.scatter(*case["samples"].T, s=14, color=MEMBER, alpha=0.6, linewidth=0, label="anchored solutions")
        contours(ax, posterior, LINE, "posterior")
        contours(ax, case["law"], WARM, "their law", dashed=True)
        ax.set_title(f"{title}: {formula}", fontsize=11)
        ax.set_xlabel(
            f"covariance of their law off by {case['law_error']:.0%}\n"
            f"of these {results['n_samples']} solutions by {case['sample_error']:.0%}"
            f" (perfect: {case['perfect_error']:.0%})",
            fontsize=9,
            color=INK,
        )
    axes[1].legend(loc="upper left", frameon=False, fontsize=9)
    for ax in axes:
        ax.set(aspect="equal", xlim=(-3.4, 4.6), ylim=(-3.4, 4.6))
        ax.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def contours(ax: Any, normal: Normal, colour: str, label: str, dashed: bool = False) -> None:
    """The ellipses one and two standard deviations from the mean, the inner one filled."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    root = np.linalg.cholesky(normal.covariance)
    for radius in (1, 2):
        x, y = normal.mean[:, None] + radius * root @ circle
        ax.plot(x, y, "--" if dashed else "-", color=colour, linewidth=1.6, label=label if radius == 1 else None)
        if radius == 1 and not dashed:
            ax.fill(x, y, color=colour, alpha=0.12, linewidth=0)


def main() -> None:
    """Run, print the table, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = run(Config(seed=arguments.seed))
    path = arguments.out / "figure_8.png"
    draw(results, path)
    print(table(results))
    print(f"picture {path}")


if __name__ == "__main__":
    main()
