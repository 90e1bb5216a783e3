"""The paper's study of exploration on CartPole: figures 3 to 7 and 9 to 12, and what became of its claims.

python -m anchored.experiments.figures_3_to_12 --out report
python -m anchored.experiments.figures_3_to_12 --out report --quick    (a rehearsal: too short for the claims)
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from anchored.experiments.cart_pole_claims import (
    LATE,
    claims,
    drift_of,
    late_dips,
    late_spread,
    probabilities,
    totals,
    windows,
)
from anchored.experiments.cart_pole_study import BY_MEMBERS, STATES, VARIANTS, Runs, Study, run

CUMULATIVE = "cumulative reward, thousands"
QUICK = Study(n_episodes=200, n_runs=2, width=100, annealed_over=80, greedy_from=80, n_evaluated=20, window=10)
ACTIONS = {"left": "#d9722e", "right": "#08519c"}


def curves(study: Study, runs: Runs) -> dict[str, np.ndarray]:
    """What the panels show, by their titles, (runs, windows)."""
    return {
        f"reward, mean of {study.window} episodes": windows(study, runs.reward),
        CUMULATIVE: runs.reward.cumsum(1)[:, study.window - 1 :: study.window] / 1000,
        f"explorations in {study.max_episode_steps} steps, mean of {study.window} episodes": windows(
            study, runs.explored
        ),
    }


def draw_learning(study: Study, rows: dict[str, Runs], reference: tuple[str, Runs] | None, path: Path) -> None:
    """A row of panels for each variant: its runs, their mean, two standard deviations; another's mean beside them."""
    import matplotlib.pyplot as plt

    from anchored.plots import REFERENCE, BandDisplay

    figure = plt.figure(figsize=(13, 3.9 * len(rows)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, (name, runs) in zip(parts, rows.items(), strict=True):
        part.suptitle(name, fontsize=12)
        axes = part.subplots(1, 3)
        for ax, (panel, values) in zip(axes, curves(study, runs).items(), strict=True):
            x = _episodes(study, panel)
            BandDisplay(x, values.mean(0), values.std(0, ddof=1), values).plot(ax, n_bands=2)
            ax.get_legend().remove()
            if reference is not None:
                ax.plot(x, curves(study, reference[1])[panel].mean(0), **REFERENCE, label=reference[0])
            _finish(study, ax, panel)
        axes[0].get_lines()[0].set_label("runs")
        axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    _save(figure, path)


def draw_state(study: Study, runs: Runs, state: str, path: Path) -> None:
    """Figures 5 to 7: both actions' values early, midway and late in the first run; in words, in all runs."""
    import matplotlib.pyplot as plt

    q = runs.q[:, :, :, list(STATES).index(state)]  # (runs, episodes, members, actions)
    figure, axes = plt.subplots(1, 3, figsize=(13, 3.9), layout="constrained")
    episodes = (study.burn_in, study.n_episodes // 2 - 1, study.n_episodes - 1)
    shown = q[0, list(episodes)]
    # all panels are as wide as the broadest needs, so that breadths can be compared
    half_width = max(np.abs(shown - shown.mean((1, 2), keepdims=True)).max() * 1.3, 3 * shown.std(1, ddof=1).max())
    for ax, episode, values in zip(axes, episodes, shown, strict=True):
        centre = values.mean()
        x = np.linspace(centre - half_width, centre + half_width, 400)
        chosen = probabilities(q[:, episode])
        for i, (action, colour) in enumerate(ACTIONS.items()):
            density = stats.norm(values[:, i].mean(), values[:, i].std(ddof=1)).pdf(x)
            ax.fill_between(x, density, color=colour, alpha=0.25, linewidth=0)
            ax.plot(x, density, color=colour, linewidth=1.8, label=f"{action}: p = {chosen[0, i]:.2f}")
            ax.plot(values[:, i], np.zeros(len(values)), "|", color=colour, markersize=12, clip_on=False)
        ax.set(xlabel="Q-value", xlim=(x[0], x[-1]), yticks=[])
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        others = ", ".join(f"{p:.2f}" for p in chosen[:, 1])
        ax.set_title(f"after episode {episode + 1}\np(right) of each run: {others}", fontsize=10)
        ax.legend(frameon=False, fontsize="small", loc="upper right")
    axes[0].set_ylabel("density")
    where = ", ".join(f"{x:g}" for x in STATES[state])
    figure.suptitle(f"{state} state ({where}): members' values (marks) in the first run, and their fit", fontsize=12)
    _save(figure, path)


def draw(study: Study, runs: dict[str, Runs], folder: Path) -> None:
    """All nine figures."""
    beside = {
        3: None,
        4: ("mean of figure 3", runs["single"]),
        **dict.fromkeys((9, 10, 11), ("mean of figure 4", runs["thompson"])),
    }
    for number, reference in beside.items():
        rows = {v.title: runs[name] for name, v in VARIANTS.items() if v.figure == number}
        draw_learning(study, rows, reference, folder / f"figure_{number}.png")
    for number, state in zip((5, 6, 7), STATES, strict=True):
        draw_state(study, runs["thompson"], state, folder / f"figure_{number}.png")
    sizes = {VARIANTS[name].title: runs[name] for name in BY_MEMBERS.values()}
    draw_learning(study, sizes, ("mean of figure 4", runs["thompson"]), folder / "figure_12.png")


def table(study: Study, runs: dict[str, Runs]) -> str:
    """A line for each variant."""
    n = 2 * study.window
    titles = (f"first {n}", f"last {n}", "cumulative", "explored", "late dip", "late s.d.", "greedy", "one side", "out")
    lines = [f"{'':54}" + "".join(f"{title:>12}" for title in titles)]
    for name, own in runs.items():
        reward, drift = own.reward, drift_of(own)
        cells = (
            f"{reward[:, :n].mean():.1f}",
            f"{reward[:, -n:].mean():.1f}",
            f"{totals(own).mean():.0f}",
            f"{own.explored.mean() / study.max_episode_steps:.0%}",
            f"{late_dips(study, own).mean():.1f}",
            f"{late_spread(study, own):.1f}",
            f"{own.greedy_reward.mean():.1f}",
            f"{drift['same_side'].mean():.0%}",
            f"{drift['distance'].mean():.2f}",
        )
        title = f"{VARIANTS[name].figure:2d} {VARIANTS[name].title}"
        lines.append(f"{title:54}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def present(study: Study, runs: dict[str, Runs]) -> None:
    """Print the table and what became of the paper's claims."""
    print(table(study, runs))
    print(
        f"late: after episode {LATE * study.n_episodes:.0f}; greedy: steps in {study.n_evaluated} episodes of each "
        "trained agent, with the share that end on a run's commoner side, and how far out"
    )
    for figure, found in sorted(claims(study, runs).items()):
        for claim, holds, number in found:
            print(f"figure {figure:2d}  {'holds' if holds else 'DOES NOT HOLD':14} {claim} ({number})")
        if not found:
            print(f"figure {figure:2d}  {'no claim':14} the paper only shows it; see the table")


def _episodes(study: Study, panel: str) -> np.ndarray:
    """Where a window's value stands: means in its middle, sums at its end."""
    ends = study.window * np.arange(1, study.n_episodes // study.window + 1)
    return ends if panel == CUMULATIVE else ends - study.window / 2


def _finish(study: Study, ax: Any, panel: str) -> None:
    """After all lines: what the panels share."""
    ax.set(xlabel="episode", ylabel="", xlim=(0, study.n_episodes))
    ax.set_title(panel, fontsize=10)
    ax.set_ylim(0, None if panel == CUMULATIVE else 1.04 * study.max_episode_steps)
    ax.spines[["top", "right"]].set_visible(False)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run, save the pictures, print the table and the claims."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the pictures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that all is well")
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else Study()
    study = Study(**{**vars(size), "seed": arguments.seed})
    started = time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, TimeElapsedColumn()) as bars:
        task = bars.add_task("CartPole", total=study.n_runs * len(VARIANTS))
        runs = run(study, on_progress=lambda n: bars.advance(task, n))
    draw(study, runs, arguments.out)
    present(study, runs)
    if arguments.quick:
        print("a rehearsal: too short for the claims to mean anything")
    print(f"{time.perf_counter() - started:.0f} s; pictures {arguments.out}/figure_3.png to figure_12.png")


if __name__ == "__main__":
    main()
