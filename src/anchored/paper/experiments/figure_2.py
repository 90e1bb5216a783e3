"""Figure 2: ensembles of the paper's section 2 on six points. A unregularised, B regularised to zero, C anchored."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

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
from anchored.paper.experiments.exhibit import Claim, Exhibit, Progress, ignored, judged
from anchored.paper.experiments.six_points import INPUTS, TARGETS, Problem, measured
from anchored.plots import as_png

N_DRAWN = 10  # members shown


@dataclass(frozen=True)
class Config:
    """What is compared."""

    activation: str = "relu"
    width: int = 1000
    n_members: int = 100
    max_iter: int = 12_000
    learning_rate: float = 0.01
    seed: int = 0


QUICK = Config(width=50, n_members=40, max_iter=500)


def methods(config: Config) -> dict[str, tuple[Any, Any]]:
    """The panels; for the table, what else there is."""
    descent = FirstOrder(max_iter=config.max_iter, learning_rate=config.learning_rate)
    short = replace(descent, max_iter=32)
    few = min(config.n_members, 10)
    anchored = AnchoredEnsemble(config.n_members, "randomized", solver=GaussNewton())
    from_prior = replace(anchored, anchoring="prior")
    return {
        "A unregularised": (UnregularizedEnsemble(config.n_members, descent), UnregularizedEnsemble(few, short)),
        "B regularised to zero": (RegularizedEnsemble(config.n_members, descent), RegularizedEnsemble(few, short)),
        "C anchored": (anchored, replace(anchored, n_estimators=2)),
        "Gaussian process": (GaussianProcess(), GaussianProcess()),
        "C anchored, from the prior": (from_prior, replace(from_prior, n_estimators=2)),
        "bootstrap": (BootstrapEnsemble(config.n_members, descent), BootstrapEnsemble(few, short)),
    }


def run(config: Config, on_progress: Progress = ignored) -> dict[str, Any]:
    """Marginals, some members, and distances of every ensemble."""
    problem = Problem(config.activation, config.width)
    rows, bands, members = {}, {}, {}
    for name, (method, rehearsal) in methods(config).items():
        posterior, seconds, compile_seconds = six_points.timed_fit(problem, method, rehearsal, config.seed)
        bands[name] = six_points.marginals(problem, posterior)
        members[name] = posterior.outputs(problem.points.astype(posterior.dtype))[:N_DRAWN, :, 0]
        at_points = posterior.predict(INPUTS[:, None].astype(posterior.dtype)).mean[:, 0]
        rows[name] = {
            **six_points.compare(problem, *bands[name]),
            "errors": six_points.standard_errors(problem, posterior),
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "residual": float(np.sqrt(np.mean((at_points - TARGETS) ** 2) / problem.noise_variance)),
        }
        on_progress(1 / len(methods(config)))
    return {"rows": rows, "bands": bands, "members": members}


def exhibits(config: Config, results: dict[str, Any]) -> tuple[Exhibit, ...]:
    """The figure."""
    return (
        Exhibit(
            name="figure_2",
            title="Figure 2: to regularise or not to regularise",
            paper="The dilemma of ordinary ensembles. Without regularisation (A) the members overfit; regularised to "
            "zero (B) they all come to the same function and the ensemble loses its diversity. Anchoring (C) solves "
            "both.",
            picture=draw(config, results),
            description="Members of four ensembles through six points: unregularised, regularised to zero, anchored, "
            "and draws of the exact process. The members of B lie on one line; those of C spread like the process.",
            claims=claims(results["rows"]),
            tables=(six_points.table(results["rows"]),),
            notes=("± is one standard error over the members of the one run.",),
        ),
    )


def claims(rows: dict[str, dict[str, Any]]) -> tuple[Claim, ...]:
    """What the paper says of its figure, whether it holds here, and by what number."""
    a, b, c = rows["A unregularised"], rows["B regularised to zero"], rows["C anchored"]
    exact = rows["Gaussian process"]["residual"]
    return (
        judged(
            "A overfits: it goes through the points, and is sure of itself there.",
            a["residual"] < exact / 3 and a["std_ratio_at_points"] < 0.2,
            f"residual of its mean {a['residual']:.2f} noise s.d. (the process, exactly: {exact:.2f}); s.d. ratio at "
            f"the points {measured(a, 'std_ratio_at_points', 3)}",
        ),
        judged(
            "B collapses: its members agree everywhere.",
            b["std_ratio"] < 0.2,
            f"s.d. ratio {measured(b, 'std_ratio', 3)}",
        ),
        judged(
            "C is close to the process in its spread, and closer to it than A and B.",
            c["wasserstein"] < min(a["wasserstein"], b["wasserstein"]) and abs(c["std_ratio"] - 1) < 0.2,
            f"s.d. ratio {measured(c, 'std_ratio')}; Wasserstein {measured(c, 'wasserstein', 3)} against "
            f"{measured(a, 'wasserstein', 3)} and {measured(b, 'wasserstein', 3)}",
        ),
    )


def draw(config: Config, results: dict[str, Any]) -> bytes:
    """Three panels and the process beside them."""
    import matplotlib.pyplot as plt

    from anchored.plots import BandDisplay

    problem = Problem(config.activation, config.width)
    names = list(results["rows"])[:4]
    figure, axes = plt.subplots(1, 4, figsize=(15, 3.6), sharex=True, sharey=True, layout="constrained")
    for ax, name in zip(axes, names, strict=True):
        mean, std = results["bands"][name]
        BandDisplay(problem.grid, mean, std, results["members"][name], INPUTS, TARGETS).plot(ax)
        ax.get_legend().remove()
        row = results["rows"][name]
        ax.set_title(name, fontsize=11)
        ax.set(ylim=(-3, 3), xlabel="", ylabel="")
        note = f"s.d. ratio {row['std_ratio']:.2f}, Wasserstein {row['wasserstein']:.2f}"
        ax.text(0.02, 0.02, note, transform=ax.transAxes, fontsize=8, va="bottom")
    return as_png(figure)
