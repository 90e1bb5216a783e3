"""Figure 8: Bayesian inference by anchored MAP estimates in two dimensions, with eq. 31 and 33 corrected."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from anchored.exact.linear_gaussian import LinearGaussian, Normal
from anchored.paper.findings import Claim, Figure, Progress, Table, below, no_progress
from anchored.plots import as_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARM, GREEN, GREY = "#d9722e", "#5a9e6f", "#888888"  # in addition to the blues of `plots`
ROUNDING = 1e-10  # largest relative error of a covariance that is exact
NEAR = 0.5  # largest relative error of a covariance that is near


@dataclass(frozen=True)
class Config:
    """A correlated likelihood, and an isotropic prior λ₁I with λ₁ ≠ 1, for which the error of eq. 31 matters."""

    prior_variance: float = 2.0  # λ₁
    likelihood_mean: tuple[float, float] = (1.6, 1.2)  # μ_like
    likelihood_std: tuple[float, float] = (1.3, 0.9)  # standard deviations, the roots of the diagonal of Σ_like
    likelihood_correlation: float = -0.6  # of the two parameters
    n_samples: int = 150  # number of anchored solutions for each anchor covariance
    seed: int = 0  # random seed of the anchors


class Case(TypedDict):
    """Anchored solutions with one anchor covariance.

    Errors are those of a covariance, relative to the covariance of the posterior.
    """

    prior_variance: float  # λ₁
    samples: np.ndarray  # (samples, 2), the solutions
    distribution: Normal  # of the solutions
    distribution_error: float  # of the covariance of `distribution`
    sample_error: float  # of the covariance of `samples`
    expected_covariance_error: float  # expected error of as many draws from the posterior


class Results(TypedDict):
    """Prior, likelihood and posterior, and a case for each anchor covariance."""

    prior: Normal  # N(0, λ₁I)
    likelihood: Normal
    posterior: Normal
    n_samples: int  # number of anchored solutions in each case
    cases: dict[str, Case]  # by name of the anchor covariance


FULL = Config()
QUICK = Config()  # the full experiment is already quick


def likelihood(config: Config) -> Normal:
    """Return the likelihood of `config` as a normal distribution of the parameters, N(μ_like, Σ_like)."""
    std = np.array(config.likelihood_std)
    correlation = np.array([[1, config.likelihood_correlation], [config.likelihood_correlation, 1]])
    return Normal(np.array(config.likelihood_mean), correlation * np.outer(std, std))


def problem(config: Config, prior_variance: float) -> LinearGaussian:
    """Return the model of `config` with the prior N(0, `prior_variance` I); Σ_like can be inverted here."""
    normal = likelihood(config)
    precision = np.linalg.inv(normal.covariance)
    return LinearGaussian(np.zeros(2), prior_variance * np.eye(2), precision, precision @ normal.mean)


def printed_equation_31(prior_variance: float, precision: np.ndarray) -> np.ndarray:
    """Return λ₁³I + λ₁²Σ_like⁻¹, as printed; λ₁ is `prior_variance` and Σ_like⁻¹ is `precision`.

    The right form is λ₁I + λ₁²Σ_like⁻¹.
    """
    return prior_variance**3 * np.eye(len(precision)) + prior_variance**2 * precision


def printed_equation_33(prior_variance: float, precision: np.ndarray) -> np.ndarray:
    """Return (λ₁³ + λ₁²λ₂)I, as printed; λ₁ is `prior_variance`, 1/λ₂ the mean of the diagonal of `precision`.

    The right form is (λ₁ + λ₁²/λ₂)I.
    """
    likelihood_variance = len(precision) / np.trace(precision)
    return (prior_variance**3 + prior_variance**2 * likelihood_variance) * np.eye(len(precision))


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Sample with each anchor covariance, from the same random numbers, and compare with the posterior.

    `config` has the model; `on_progress` is called once, at the end.
    """
    model, unit_model = problem(config, config.prior_variance), problem(config, 1.0)
    cases = {
        "exact": (model, model.exact_anchor_covariance()),
        "isotropic": (model, model.trace_matched_kappa() * model.prior_covariance),
        "printed_31": (model, printed_equation_31(config.prior_variance, model.precision)),
        "printed_33": (model, printed_equation_33(config.prior_variance, model.precision)),
        "printed_31_unit_prior": (unit_model, printed_equation_31(1.0, unit_model.precision)),
    }
    measured = {name: measure(*case, config) for name, case in cases.items()}
    on_progress(1.0)
    return {
        "prior": Normal(model.prior_mean, model.prior_covariance),
        "likelihood": likelihood(config),
        "posterior": model.posterior(),
        "n_samples": config.n_samples,
        "cases": measured,
    }


def measure(model: LinearGaussian, anchor_covariance: np.ndarray, config: Config) -> Case:
    """Sample solutions of `model` with anchors of covariance `anchor_covariance`, and measure their errors.

    The number of samples and the seed are in `config`; errors are those of covariances.
    """
    posterior, distribution = model.posterior(), model.anchored_distribution(anchor_covariance)
    samples = model.sample(np.random.default_rng(config.seed), config.n_samples, anchor_covariance)
    return {
        "prior_variance": model.prior_covariance[0, 0],
        "samples": samples,
        "distribution": distribution,
        "distribution_error": posterior.covariance_error(distribution.covariance),
        "sample_error": posterior.covariance_error(np.cov(samples.T)),
        "expected_covariance_error": posterior.expected_covariance_error(config.n_samples),
    }


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return the figure of the `results` with `config`."""
    return (
        Figure(
            name="figure_8",
            title="Figure 8: anchored sampling in two dimensions",
            paper="Two parameters have a normal prior and a normal likelihood. 150 anchors are drawn, and for each "
            "anchor the MAP estimate that is regularised towards it is a sample. The paper says that these samples "
            "follow the posterior if anchors are drawn according to its eq. 31, and nearly follow it with the "
            "isotropic anchors of its eq. 33.",
            picture=draw(results),
            description="Four panels. The first has the contours of prior, likelihood and posterior; the others have "
            "anchored solutions over the posterior. With exact anchors the two agree; with isotropic anchors the "
            "solutions have another shape; with eq. 31 as printed their spread is far too wide.",
            claims=claims(results),
            tables=(table(results),),
            notes=(
                f"The prior variance here is λ₁ = {config.prior_variance:g}. If it is 1, λ₁³ = λ₁, and eq. 31 is right "
                "as printed (last row of the table). “Near” means that the relative error of the covariance is less "
                f"than {NEAR:.0%}.",
            ),
        ),
    )


def claims(results: Results) -> tuple[Claim, ...]:
    """Return the claims about eq. 31 and eq. 33, with the errors in `results` of the printed and corrected forms."""
    exact, isotropic, printed_31, printed_33 = (
        results["cases"][name] for name in ("exact", "isotropic", "printed_31", "printed_33")
    )
    n, perfect = results["n_samples"], exact["expected_covariance_error"]
    return (
        Claim.compared(
            "Anchors from eq. 31, λ₁³I + λ₁²Σ_like⁻¹, make anchored solutions samples of the posterior.",
            [below(printed_31["distribution_error"], 0, ROUNDING)],
            [below(exact["distribution_error"], 0, ROUNDING)],
            "relative error of the covariance of the solutions' distribution, as printed: "
            f"{printed_31['distribution_error']:.0%} (exact); corrected, λ₁I + λ₁²Σ_like⁻¹: only rounding "
            f"({exact['distribution_error']:.0e}). For these {n} solutions the error is {exact['sample_error']:.1%}; "
            f"for {n} exact draws it is {perfect:.1%} on average",
        ),
        Claim.compared(
            "With isotropic anchors from eq. 33, (λ₁³ + λ₁²λ₂)I, anchored solutions are near the posterior.",
            [below(printed_33["distribution_error"], 0, NEAR)],
            [below(isotropic["distribution_error"], 0, NEAR)],
            "relative error of the covariance of the solutions' distribution, as printed: "
            f"{printed_33['distribution_error']:.0%} (exact); corrected, (λ₁ + λ₁²/λ₂)I: "
            f"{isotropic['distribution_error']:.0%} (exact), and {isotropic['sample_error']:.0%} for {n} solutions",
        ),
    )


def table(results: Results) -> Table:
    """Return a table of the errors in `results`, with one row for each anchor covariance."""
    names = {
        "exact": "exact, λ₁I + λ₁²Σ_like⁻¹",
        "isotropic": "isotropic, (λ₁ + λ₁²/λ₂)I",
        "printed_31": "printed eq. 31, λ₁³I + λ₁²Σ_like⁻¹",
        "printed_33": "printed eq. 33, (λ₁³ + λ₁²λ₂)I",
        "printed_31_unit_prior": "printed eq. 31, where λ₁ = 1",
    }
    rows = []
    for name, case in results["cases"].items():
        errors = (case["distribution_error"], case["sample_error"], case["expected_covariance_error"])
        rows.append((names[name], f"{case['prior_variance']:.1f}", *(f"{error:.1%}" for error in errors)))
    n = results["n_samples"]
    header = ("anchor covariance", "λ₁", "distribution", f"{n} solutions", f"{n} exact draws")
    return Table(header, tuple(rows), "Relative error of the covariance")


def draw(results: Results) -> bytes:
    """Return the picture of `results` as PNG: the three distributions, then samples for three anchor covariances."""
    import matplotlib.pyplot as plt

    from anchored.plots import INK, LINE, MEMBER

    figure, axes = plt.subplots(1, 4, figsize=(13.5, 4.4), layout="constrained", sharex=True, sharey=True)
    posterior = results["posterior"]
    contours(axes[0], results["prior"], GREY, "prior")
    contours(axes[0], results["likelihood"], GREEN, "likelihood")
    contours(axes[0], results["posterior"], LINE, "posterior")
    axes[0].set_title(rf"given, $\lambda_1 = {results['cases']['exact']['prior_variance']:g}$", fontsize=11)
    axes[0].set_xlabel("contours of 1 and 2 standard deviations", fontsize=10, color=INK)
    axes[0].legend(loc="upper left", frameon=False, fontsize=10)
    titles = {
        "exact": ("exact anchors", r"$\lambda_1 I + \lambda_1^2\,\Sigma_{like}^{-1}$"),
        "isotropic": ("isotropic anchors", r"$(\lambda_1 + \lambda_1^2/\lambda_2)\,I$"),
        "printed_31": ("eq. 31 as printed", r"$\lambda_1^3 I + \lambda_1^2\,\Sigma_{like}^{-1}$"),
    }
    for ax, (name, (title, formula)) in zip(axes[1:], titles.items(), strict=True):
        case = results["cases"][name]
        ax.scatter(*case["samples"].T, s=14, color=MEMBER, alpha=0.6, linewidth=0, label="anchored solutions")
        contours(ax, posterior, LINE, "posterior")
        contours(ax, case["distribution"], WARM, "their distribution", dashed=True)
        ax.set_title(f"{title}: {formula}", fontsize=11)
        ax.set_xlabel(
            f"covariance of their distribution off by {case['distribution_error']:.0%}\n"
            f"of these {results['n_samples']} solutions by {case['sample_error']:.0%}\n"
            f"(exact draws: {case['expected_covariance_error']:.0%})",
            fontsize=10,
            color=INK,
        )
    axes[1].legend(loc="upper left", frameon=False, fontsize=10)
    for ax in axes:
        ax.set(aspect="equal", xlim=(-3.4, 4.6), ylim=(-3.4, 4.6))
        ax.spines[["top", "right"]].set_visible(False)
    return as_png(figure, dpi=130)


def contours(ax: "Axes", normal: Normal, colour: str, label: str, dashed: bool = False) -> None:
    """Draw the ellipses of one and two standard deviations of `normal` into `ax`, with this `colour` and `label`.

    The inner ellipse is filled, unless the ellipses are `dashed`.
    """
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    root = np.linalg.cholesky(normal.covariance)
    for radius in (1, 2):
        x, y = normal.mean[:, None] + radius * root @ circle
        ax.plot(x, y, "--" if dashed else "-", color=colour, linewidth=1.6, label=label if radius == 1 else None)
        if radius == 1 and not dashed:
            ax.fill(x, y, color=colour, alpha=0.12, linewidth=0)
