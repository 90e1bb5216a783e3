"""Figure 2: ensembles of the paper's section 2 on six points. A unregularised, B regularised to zero, C anchored.

python -m anchored.experiments.figure_2 --out report
"""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anchored.experiments import six_points
from anchored.experiments.six_points import INPUTS, TARGETS, Problem
from anchored.methods import (
    AnchoredEnsemble,
    BootstrapEnsemble,
    FirstOrder,
    GaussianProcess,
    GaussNewton,
    RegularizedEnsemble,
    UnregularizedEnsemble,
)

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


def run(config: Config) -> dict[str, Any]:
    """Marginals, some members, and distances of every ensemble."""
    problem = Problem(config.activation, config.width)
    rows, bands, members = {}, {}, {}
    for name, (method, rehearsal) in methods(config).items():
        posterior, seconds, compile_seconds = six_points.timed_fit(problem, method, rehearsal, config.seed)
        bands[name] = six_points.marginals(problem, posterior)
        members[name] = posterior.outputs(problem.points.astype(posterior.dtype))[:N_DRAWN, :, 0]
        distances = six_points.compare(problem, *bands[name])
        at_points = posterior.predict(INPUTS[:, None].astype(posterior.dtype)).mean[:, 0]
        rows[name] = {
            **distances,
            "seconds": seconds,
            "compile_seconds": compile_seconds,
            "residual": float(np.sqrt(np.mean((at_points - TARGETS) ** 2) / problem.noise_variance)),
        }
    return {"config": config, "rows": rows, "bands": bands, "members": members, "claims": claims(rows)}


def claims(rows: dict[str, dict[str, float]]) -> list[tuple[str, bool, str]]:
    """What the paper says of its figure, whether it holds here, and by what number."""
    a, b, c = rows["A unregularised"], rows["B regularised to zero"], rows["C anchored"]
    exact = rows["Gaussian process"]["residual"]
    return [
        (
            "A overfits: it goes through the points, and is sure of itself there",
            a["residual"] < exact / 3 and a["std_ratio_at_points"] < 0.2,
            f"residual {a['residual']:.2f} noise s.d. (process: {exact:.2f}), s.d. ratio at points "
            f"{a['std_ratio_at_points']:.2f}",
        ),
        ("B collapses: its members agree everywhere", b["std_ratio"] < 0.2, f"s.d. ratio {b['std_ratio']:.3f}"),
        (
            "C is close to the process, closer than A and B",
            c["wasserstein"] < min(a["wasserstein"], b["wasserstein"]) and abs(c["std_ratio"] - 1) < 0.2,
            f"s.d. ratio {c['std_ratio']:.2f}; Wasserstein {c['wasserstein']:.3f} against {a['wasserstein']:.3f} and "
            f"{b['wasserstein']:.3f}",
        ),
    ]


def draw(results: dict[str, Any], path: Path) -> None:
    """Three panels and the process beside them."""
    import matplotlib.pyplot as plt

    from anchored.plots import BandDisplay

    problem = Problem(results["config"].activation, results["config"].width)
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run, print the table and the claims, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    results = run(Config(seed=arguments.seed))
    path = arguments.out / "figure_2.png"
    draw(results, path)
    six_points.present(results, path)


if __name__ == "__main__":
    main()
