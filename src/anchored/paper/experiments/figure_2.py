"""Figure 2: three ensembles on six points: A unregularised, B regularised towards zero, C anchored.

Panel C adds noise to the targets (`anchoring="randomized"`), as the posterior requires; the paper's own anchoring,
"from the prior" in the table, does not, and its spread is too small.
"""

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np

from anchored.certification.distances import jackknife
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.methods import (
    AnchoredEnsemble,
    BootstrapEnsemble,
    FirstOrder,
    GaussianProcess,
    GaussNewton,
    RegularizedEnsemble,
    UnregularizedEnsemble,
)
from anchored.paper.experiments import six_points
from anchored.paper.experiments.regression_tasks import Marginals
from anchored.paper.experiments.six_points import INPUTS, TARGETS, Row, SixPoints, measured, value_and_error
from anchored.paper.findings import Claim, Figure, Progress, above, below, no_progress, within
from anchored.plots import as_png

N_DRAWN = 10  # number of members or draws of a method that the picture shows
OVERFITTED = 1 / 3  # residual of an ensemble's mean, relative to that of the process, below which it overfits
COLLAPSED = 0.2  # a ratio of standard deviations, to the process, below which a spread has collapsed
CLOSE_SPREAD = 0.2  # largest difference from 1 of a ratio of standard deviations that is "close"


class Results(TypedDict):
    """Distances, marginals and members of each method, by its name."""

    rows: dict[str, Row]  # distances and times
    bands: dict[str, Marginals]  # on the grid
    members: dict[str, np.ndarray]  # (N_DRAWN, grid), outputs of the first members or draws
    residuals: dict[str, tuple[float, float]]  # r.m.s. residual of the mean at the six points and its standard error


@dataclass(frozen=True)
class Config:
    """The network, and the number of members and their training."""

    activation: str = "relu"  # name of the activation
    width: int = 1000  # number of hidden units
    n_members: int = 100  # number of members of each ensemble
    max_iter: int = 12_000  # number of epochs of ensembles that are trained with Adam: A, B and bootstrap
    learning_rate: float = 0.01  # initial learning rate of the same ensembles
    seed: int = 0  # random seed of the methods


FULL = Config()
QUICK = Config(width=50, n_members=40, max_iter=500)


def methods(config: Config) -> dict[str, tuple[Method, Method]]:
    """Return the methods by name, in the sizes of `config`, each with a warm-up.

    A warm-up is a short version of the method, fitted first so that the time of the fit does not include compilation.
    The first four are those of the panels; two more are only in the table.
    """
    descent = FirstOrder(max_iter=config.max_iter, learning_rate=config.learning_rate)
    short = replace(descent, max_iter=32)
    few = min(config.n_members, 10)
    anchored = AnchoredEnsemble(config.n_members, "randomized", solver=GaussNewton())
    from_prior = replace(anchored, anchoring="prior")
    return {
        "A unregularised": (UnregularizedEnsemble(config.n_members, descent), UnregularizedEnsemble(few, short)),
        "B regularised towards zero": (RegularizedEnsemble(config.n_members, descent), RegularizedEnsemble(few, short)),
        "C anchored": (anchored, replace(anchored, n_estimators=2)),
        "Gaussian process": (GaussianProcess(), GaussianProcess()),
        "C anchored, from the prior": (from_prior, replace(from_prior, n_estimators=2)),
        "bootstrap": (BootstrapEnsemble(config.n_members, descent), BootstrapEnsemble(few, short)),
    }


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Fit every method with the sizes of `config`; return distances, marginals and some members.

    `on_progress` is called with fractions of the work.
    """
    task = SixPoints(config.activation, config.width)
    results: Results = {"rows": {}, "bands": {}, "members": {}, "residuals": {}}
    for name, (method, warm_up) in methods(config).items():
        fit, results["bands"][name], results["rows"][name] = six_points.fit_and_compare(
            task, reference=task, method=method, warm_up=warm_up, seed=config.seed
        )
        dtype = fit.posterior.dtype
        results["members"][name] = fit.posterior.outputs(task.grid_rows.astype(dtype))[:N_DRAWN, :, 0]
        results["residuals"][name] = residual_and_error(task, fit.posterior)
        on_progress(1 / len(methods(config)))
    return results


def residual_and_error(task: SixPoints, posterior: Posterior) -> tuple[float, float]:
    """Return the root-mean-square residual of the mean of `posterior` at the six points, and its standard error.

    Both are in standard deviations of the noise of `task`.
    """

    def residual(mean: np.ndarray, std: np.ndarray | None = None) -> list[float]:
        return [float(np.sqrt(np.mean((mean - TARGETS) ** 2) / task.noise_variance))]

    inputs = INPUTS[:, None].astype(posterior.dtype)
    (value,) = residual(posterior.predict_regression(inputs).mean[:, 0])
    if not isinstance(posterior, MemberPosterior):
        return value, 0.0
    (error,) = jackknife(posterior.outputs(inputs)[..., 0], residual)
    return value, float(error)


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return the figure of the `results` with `config`."""
    return (
        Figure(
            name="figure_2",
            title="Figure 2: to regularise or not to regularise",
            paper="The dilemma of ordinary ensembles: without regularisation (A), the members overfit; if they are "
            "regularised towards zero (B), all of them learn the same function, and the ensemble loses its diversity. "
            "Anchoring (C) solves both problems.",
            picture=draw(config, results),
            description="Members of three ensembles through six points: unregularised, regularised towards zero and "
            "anchored; and draws of the exact process. The members of B lie on one line; those of C spread like the "
            "process.",
            claims=claims(results),
            tables=(six_points.table(results["rows"]),),
            notes=(
                "C adds noise to the targets, which is needed for draws from the posterior. Without this noise, as in "
                "the paper (“C anchored, from the prior”), the spread is too small.",
                "The s.d. ratio is the standard deviation (s.d.) of an ensemble divided by that of the process. "
                f"“Overfits” means that the residual of the mean is less than {OVERFITTED:.0%} of the exact process's, "
                f"“collapses” that the s.d. ratio is below {COLLAPSED}, and “close in its spread” that the s.d. ratio "
                f"is within {CLOSE_SPREAD} of 1.",
            ),
        ),
    )


def claims(results: Results) -> tuple[Claim, ...]:
    """Return the paper's claims about the figure, tested with `results`."""
    names = ("A unregularised", "B regularised towards zero", "C anchored")
    a, b, c = (results["rows"][name] for name in names)
    (residual, residual_error), (exact, _) = (results["residuals"][n] for n in ("A unregularised", "Gaussian process"))
    distance, error = value_and_error(c, "wasserstein")
    others = [value_and_error(row, "wasserstein") for row in (a, b)]
    return (
        Claim.tested(
            "A overfits: it goes through the points, and is overconfident there.",
            (
                below(residual, residual_error, OVERFITTED * exact),
                below(*value_and_error(a, "std_ratio_at_points"), COLLAPSED),
            ),
            f"residual of its mean {residual:.2f} ± {residual_error:.2f} noise s.d. (exact process: {exact:.2f}); s.d. "
            f"ratio at the points {measured(a, 'std_ratio_at_points', 3)}",
        ),
        Claim.tested(
            "B collapses: its members agree everywhere.",
            [below(*value_and_error(b, "std_ratio"), COLLAPSED)],
            f"s.d. ratio {measured(b, 'std_ratio', 3)}",
        ),
        Claim.tested(
            "C is close to the process in its spread, and closer to it than A and B.",
            (
                *within(*value_and_error(c, "std_ratio"), 1, CLOSE_SPREAD),
                *(above(other - distance, np.hypot(error, other_error), 0) for other, other_error in others),
            ),
            f"s.d. ratio {measured(c, 'std_ratio')}; 2-Wasserstein {measured(c, 'wasserstein', 3)} against "
            f"{measured(a, 'wasserstein', 3)} and {measured(b, 'wasserstein', 3)}",
            is_main=True,
        ),
    )


def draw(config: Config, results: Results) -> bytes:
    """Return the picture of `results` as PNG: a panel for each of the three ensembles, and one for the process.

    `config` has the network.
    """
    import matplotlib.pyplot as plt

    from anchored.plots import BandDisplay

    task = SixPoints(config.activation, config.width)
    names = list(results["rows"])[:4]
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.6), sharex=True, sharey=True, layout="constrained")
    for ax, name in zip(axes.ravel(), names, strict=True):
        mean, std = results["bands"][name]
        BandDisplay(task.grid, mean, std, results["members"][name], INPUTS, TARGETS).plot(ax)
        ax.get_legend().remove()
        distances = results["rows"][name]["distances"]
        ax.set_title(name, fontsize=11)
        ax.set(ylim=(-3, 3), xlabel="", ylabel="")
        note = f"s.d. ratio {distances['std_ratio']:.2f}, Wasserstein {distances['wasserstein']:.2f}"
        ax.text(0.02, 0.02, note, transform=ax.transAxes, fontsize=9, va="bottom")
    return as_png(figure)
