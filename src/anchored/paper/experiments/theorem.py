"""Theorem 1 on real data: a linear regression, for which it is exact, and a logistic regression, for which it is not.

The linear regression uses the diabetes data with one column duplicated, so that the data say nothing about one
direction of the parameters. The covariance error of M anchored solutions is compared with that of M draws from the
posterior itself. The logistic regression is in `logistic_regression`.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from scipy import linalg

from anchored.exact.linear_gaussian import LinearGaussian, Normal, cross_validated_kappa
from anchored.paper.experiments import logistic_regression
from anchored.paper.findings import (
    Claim,
    Condition,
    Figure,
    Progress,
    Table,
    below,
    mean_of,
    no_progress,
    standard_error,
    within,
)
from anchored.plots import as_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARM, GREEN = "#d9722e", "#5a9e6f"  # in addition to the blues of `plots`
METHODS = {  # of anchoring
    "randomized": "from the prior, noisy targets",
    "exact": "exact, Σp + Σp A Σp",
    "prior": "from the prior, Σp",
    "isotropic": "isotropic, κΣp",
    "cross-validated": "κΣp, κ by cross-validation",
}
SAMPLED = 1.2  # largest covariance error of solutions that sample the posterior, relative to that of exact draws
ROUNDING = 1e-8  # largest relative error of a covariance that is exact
CLOSE_MEAN = 0.5  # largest offset of means, in posterior s.d., that is "close"
CLOSE_SPREAD = 0.2  # largest difference from 1 of a ratio of standard deviations that is "close"


@dataclass(frozen=True)
class Config:
    """Prior, noise, and numbers of samples.

    `logistic` has the configuration of the logistic regression, whose seed is replaced by `seed`.
    """

    sizes: tuple[int, ...] = (200, 2_000, 20_000)  # numbers of solutions, M
    n_repeats: int = 20  # number of repeats of sampling and of cross-validation
    noise_variance: float = 0.5  # of the standardised target
    prior_scale: float = 0.2  # prior standard deviation of each parameter
    kappas: tuple[float, ...] = tuple(np.geomspace(0.1, 1_000, 25).tolist())  # candidates of cross-validation
    logistic: logistic_regression.Config = logistic_regression.Config()
    seed: int = 0  # random seed of both regressions


class MethodErrors(TypedDict):
    """Errors of one method of anchoring.

    "The distribution" is that of the anchored solutions. Ratios are its standard deviations relative to those of the
    posterior.
    """

    distribution_error: float  # error of the covariance of the distribution, relative to the posterior's
    narrowest: float  # smallest ratio over all directions
    widest: float  # largest ratio
    errors: list[np.ndarray]  # covariance errors of M solutions for each M, (repeats,)


class Regression(TypedDict):
    """Results of the linear regression."""

    sizes: tuple[int, ...]  # numbers of solutions, M
    methods: dict[str, MethodErrors]  # by the names in METHODS
    perfect: list[float]  # expected covariance error of M draws from the posterior itself, for each M
    rank: int  # of the likelihood's precision
    n_parameters: int  # number of columns, with the duplicated one
    printed_error: float  # error of the covariance of the distribution with anchors from eq. 30 as printed
    kappa: float  # of the isotropic anchor covariance κΣp, in closed form
    chosen_kappas: list[float]  # by cross-validation, one for each repeat
    spread_over_noise: float  # mean posterior variance of the function, relative to the noise variance


class Results(TypedDict):
    """Results of both regressions."""

    regression: Regression  # of the linear regression
    logistic: logistic_regression.Results  # of the logistic regression


FULL = Config()
QUICK = Config(
    sizes=(200, 2_000),
    n_repeats=3,
    logistic=logistic_regression.Config(n_rows=150, n_members=200, n_chains=2, n_warmup=100, n_draws=200),
)


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Run both regressions with `config`; `on_progress` is called after each, with the fraction of the work."""
    regression = run_regression(config)
    on_progress(0.5)
    logistic = logistic_regression.run(replace(config.logistic, seed=config.seed))
    on_progress(0.5)
    return {"regression": regression, "logistic": logistic}


def diabetes() -> tuple[np.ndarray, np.ndarray]:
    """Return X, ten columns and a copy of the third, the body-mass index, and y; all standardised."""
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return standardised(np.column_stack([X, X[:, 2]])), standardised(y)


def standardised(values: np.ndarray) -> np.ndarray:
    """Return `values` scaled to mean zero and standard deviation one, column by column."""
    return (values - values.mean(0)) / values.std(0)


def run_regression(config: Config) -> Regression:
    """Measure the covariance errors of each anchoring, of its distribution and of M solutions, for the sizes M.

    Cross-validation is repeated too, with the rows in another order.
    """
    X, y = diabetes()
    prior_covariance = config.prior_scale**2 * np.eye(X.shape[1])
    model = LinearGaussian.regression(X, y, config.noise_variance, prior_covariance)
    posterior, kappa = model.posterior(), model.trace_matched_kappa()
    fold_seeds = range(config.n_repeats * config.seed, config.n_repeats * (config.seed + 1))
    chosen_kappas = [
        cross_validated_kappa(X, y, config.noise_variance, prior_covariance, config.kappas, seed=seed)
        for seed in fold_seeds
    ]
    # An anchor covariance for each repeat; None means anchors from the prior and noise on the targets.
    anchors: dict[str, list[np.ndarray | None]] = {
        "randomized": [None] * config.n_repeats,
        "exact": [model.exact_anchor_covariance()] * config.n_repeats,
        "prior": [prior_covariance] * config.n_repeats,
        "isotropic": [kappa * prior_covariance] * config.n_repeats,
        "cross-validated": [k * prior_covariance for k in chosen_kappas],
    }
    methods: dict[str, MethodErrors] = {}
    for name, covariances in anchors.items():
        distributions = [posterior if c is None else model.anchored_distribution(c) for c in covariances]
        ratios = [std_ratios(distribution, posterior) for distribution in distributions]
        methods[name] = {
            "distribution_error": float(
                np.mean([posterior.covariance_error(distribution.covariance) for distribution in distributions])
            ),
            "narrowest": float(np.mean([ratio[0] for ratio in ratios])),
            "widest": float(np.mean([ratio[-1] for ratio in ratios])),
            "errors": [errors_of(model, covariances, size, config.seed) for size in config.sizes],
        }
    return {
        "sizes": config.sizes,
        "methods": methods,
        "perfect": [posterior.expected_covariance_error(size) for size in config.sizes],
        "rank": int(np.linalg.matrix_rank(model.precision)),
        "n_parameters": X.shape[1],
        "printed_error": posterior.covariance_error(
            model.anchored_distribution(printed_equation_30(prior_covariance, model.precision)).covariance
        ),
        "kappa": kappa,
        "chosen_kappas": chosen_kappas,
        "spread_over_noise": float(np.mean(np.sum(X @ posterior.covariance * X, axis=1)) / config.noise_variance),
    }


def printed_equation_30(prior_covariance: np.ndarray, precision: np.ndarray) -> np.ndarray:
    """Return C Σp⁻¹ C⁻¹ Σp C⁻¹, as printed, with C = Σp⁻¹ + A; Σp is `prior_covariance` and A is `precision`.

    The right form is Σp C Σp.
    """
    prior_precision = np.linalg.inv(prior_covariance)
    total = prior_precision + precision
    inverse = np.linalg.inv(total)
    return total @ prior_precision @ inverse @ prior_covariance @ inverse


def std_ratios(distribution: Normal, posterior: Normal) -> np.ndarray:
    """Return the ratios of standard deviations of `distribution` to those of `posterior`, ascending.

    They are along the directions in which both covariances are diagonal, which include the extreme ratios.
    """
    return np.sqrt(linalg.eigh(distribution.covariance, posterior.covariance, eigvals_only=True))


def errors_of(model: LinearGaussian, covariances: list[np.ndarray | None], size: int, seed: int) -> np.ndarray:
    """Return the covariance errors of `size` solutions of `model`, (repeats,), with one of `covariances` per repeat.

    `seed` is the random seed of all repeats.
    """
    posterior = model.posterior()
    draws = (
        model.sample(np.random.default_rng([seed, size, repeat]), size, covariance)
        for repeat, covariance in enumerate(covariances)
    )
    return np.array([posterior.covariance_error(np.cov(draw.T)) for draw in draws])


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return one figure with both regressions, from the `results` of a run with `config`."""
    kappas = results["regression"]["chosen_kappas"]
    return (
        Figure(
            name="theorem",
            title="Theorem 1, measured",
            paper="The theorem says: with a normal prior and a likelihood that is normal in the parameters, draw "
            "anchors from the right distribution; then MAP estimates that are regularised towards these anchors are "
            "samples from the posterior. The paper proposes to regularise towards draws from the prior, and to choose "
            "the variance of an isotropic anchor distribution by cross-validation.",
            picture=draw(results),
            description="Left, the error of the covariance against the number of anchored solutions: exact anchors and "
            "noisy targets follow the line of exact draws, and three other methods level off far above it. "
            "Right, intervals of five parameters of a logistic regression by four methods.",
            claims=claims(results),
            tables=tables(results),
            notes=(
                f"Cross-validation over {len(kappas)} orders of the rows chose κ between {min(kappas):.2f} and "
                f"{max(kappas):.2f}, with median {np.median(kappas):.2f}. Held-out rows say little about κ: the "
                f"posterior's variance is {results['regression']['spread_over_noise']:.1%} of the noise.",
                "One column of the data is duplicated, so that the likelihood's covariance, which the paper's proof "
                "inverts, does not exist. The corrected formula needs only the precision A.",
            ),
        ),
    )


def claims(results: Results) -> tuple[Claim, ...]:
    """Return the claims about the theorem and about the methods derived from it, tested with `results`."""
    regression, logistic = results["regression"], results["logistic"]
    methods, size, perfect = regression["methods"], regression["sizes"][-1], regression["perfect"][-1]
    errors_of_largest = {name: method["errors"][-1] for name, method in methods.items()}
    at_map = logistic["methods"]["exact at MAP"]
    off, ratio = np.abs(at_map["mean_offset"]).max(), at_map["std_ratio"]
    n_members = len(logistic["draws"]["exact at MAP"])
    from_prior = logistic["methods"]["prior"]["std_ratio"]

    def samples_posterior(name: str) -> Condition:
        errors = errors_of_largest[name]
        return below(np.mean(errors), standard_error(errors), SAMPLED * perfect)

    def error_text(name: str) -> str:
        return f"for {size:,} solutions it is {mean_of(errors_of_largest[name], 4)}"

    return (
        Claim.compared(
            "With the right anchor covariance, anchored solutions are samples of the posterior.",
            [below(regression["printed_error"], 0, ROUNDING)],
            (below(methods["exact"]["distribution_error"], 0, ROUNDING), samples_posterior("exact")),
            "with eq. 30 as printed, the relative error of the covariance of the solutions' distribution is "
            f"{regression['printed_error']:.0%} (exact). Corrected, Σp + Σp A Σp, the error is only rounding "
            f"({methods['exact']['distribution_error']:.0e}); {error_text('exact')}, and for as many exact draws "
            f"{perfect:.4f}",
            is_main=True,
        ),
        Claim.compared(
            "Regularising towards draws from the prior performs Bayesian inference.",
            [below(methods["prior"]["distribution_error"], 0, ROUNDING)],
            [samples_posterior("randomized")],
            f"as printed, the s.d. of the distribution is between {methods['prior']['narrowest']:.2f} and "
            f"{methods['prior']['widest']:.2f} times the posterior's, depending on the direction (exact). Corrected by "
            "noise on each member's targets, the relative error of the covariance is small: "
            f"{error_text('randomized')}, and for as many exact draws {perfect:.4f}",
            is_main=True,
        ),
        Claim.tested(
            "An isotropic anchor distribution can align the variances.",
            [samples_posterior("isotropic")],
            f"relative error of the covariance with the corrected κ = {regression['kappa']:.1f}: "
            f"{error_text('isotropic')}; the s.d. is between {methods['isotropic']['narrowest']:.2f} and "
            f"{methods['isotropic']['widest']:.2f} times the posterior's (exact)",
        ),
        Claim.tested(
            "The variance of the isotropic anchor distribution can be found by cross-validation.",
            [samples_posterior("cross-validated")],
            f"relative error of the covariance: {error_text('cross-validated')}, and for as many exact draws "
            f"{perfect:.4f}",
        ),
        Claim.tested(
            "The procedure is not specific to neural networks: it comes close to the posterior of a logistic "
            "regression, whose likelihood is not normal.",
            (
                below(off, n_members**-0.5, CLOSE_MEAN),
                *(c for r in ratio for c in within(r, (2 * n_members) ** -0.5, 1, CLOSE_SPREAD)),
            ),
            f"the means differ by at most {off:.2f} ± {n_members**-0.5:.2f} s.d., and the s.d. ratios are between "
            f"{ratio.min():.2f} and {ratio.max():.2f}, each ± {(2 * n_members) ** -0.5:.2f}; with anchors from the "
            f"prior they are between {from_prior.min():.2f} and {from_prior.max():.2f}",
        ),
    )


def tables(results: Results) -> tuple[Table, Table]:
    """Return a table of `results` for each of the two regressions."""
    regression, logistic = results["regression"], results["logistic"]
    sizes = regression["sizes"]
    rows = [
        (
            METHODS[name],
            f"{method['distribution_error']:.4f}",
            *(f"{np.mean(errors):.4f} ± {standard_error(errors):.4f}" for errors in method["errors"]),
            f"{method['narrowest']:.2f} – {method['widest']:.2f}",
        )
        for name, method in regression["methods"].items()
    ]
    rows.append(("draws from the posterior itself", "0", *(f"{error:.4f}" for error in regression["perfect"]), "1"))
    linear_table = Table(
        ("anchors", "distribution", *(f"M = {size:,}" for size in sizes), "s.d. over the posterior's"),
        tuple(rows),
        f"Linear regression with {regression['n_parameters']} parameters (the data determine {regression['rank']}): "
        "relative error of the covariance, for the distribution and for M solutions, and the s.d. along the worst "
        "directions",
    )
    rows = []
    for name, method in logistic["methods"].items():
        offset, ratio = np.abs(method["mean_offset"]), method["std_ratio"]
        spans = (f"{offset.min():.2f} – {offset.max():.2f}", f"{ratio.min():.2f} – {ratio.max():.2f}")
        rows.append((name, *spans, f"{method['covariance_error']:.3f}"))
    rows.append(("as many exact draws", "", "", f"{logistic['perfect']:.3f}"))
    rows.append(("half the Monte Carlo against all", "", "", f"{logistic['half_error']:.3f}"))
    logistic_table = Table(
        ("anchors", "mean off by, s.d.", "s.d. ratio", "error of the covariance"),
        tuple(rows),
        f"Logistic regression, {len(logistic['names'])} parameters, against Hamiltonian Monte Carlo",
    )
    return linear_table, logistic_table


def draw(results: Results) -> bytes:
    """Return the picture of `results` as PNG: errors against the number of solutions, and logistic intervals."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(12.5, 4.8), layout="constrained")
    draw_errors(left, results["regression"])
    logistic_regression.draw_intervals(right, results["logistic"])
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    return as_png(figure, dpi=130)


def draw_errors(ax: "Axes", regression: Regression) -> None:
    """Draw the covariance errors in `regression` against M into `ax`, on logarithmic axes."""
    from anchored.plots import INK, LINE, MEMBER, REFERENCE

    sizes, methods = regression["sizes"], regression["methods"]
    ax.loglog(sizes, regression["perfect"], **REFERENCE, zorder=3, label="draws from the posterior itself")
    styles = {
        "randomized": ("randomized: anchors from the prior, noisy targets", LINE, "o"),
        "exact": (r"exact: $\Sigma_0 = \Sigma_p + \Sigma_p A\,\Sigma_p$", MEMBER, "D"),
        "prior": (r"anchors from the prior: $\Sigma_0 = \Sigma_p$", INK, "s"),
        "cross-validated": (r"$\Sigma_0 = \kappa\Sigma_p$, $\kappa$ by cross-validation", GREEN, "v"),
        "isotropic": (
            r"$\Sigma_0 = \kappa\Sigma_p$, $\kappa = 1 + \mathrm{tr}(A\,\Sigma_p)/n$ for $n$ parameters",
            WARM,
            "^",
        ),
    }
    for name, (label, colour, marker) in styles.items():
        size = 8 if name == "randomized" else 5  # the two exact methods coincide
        face = "white" if name == "exact" else colour
        style = {"color": colour, "marker": marker, "markersize": size, "markerfacecolor": face, "linewidth": 1.6}
        ax.loglog(sizes, np.mean(methods[name]["errors"], axis=1), label=label, **style)
    ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
    ax.minorticks_off()
    ax.set(xlabel="anchored solutions, M", ylabel="relative error of the covariance")
    ax.set_title("linear regression: exact anchoring samples the posterior", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(0.0, 0.68))
