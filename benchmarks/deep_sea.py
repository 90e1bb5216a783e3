"""Deep exploration: number of episodes until a deep sea of size N × N is solved, for every method, ten seeds each.

    python benchmarks/deep_sea.py                     on a GPU, 13 minutes
    python benchmarks/deep_sea.py --sizes 10 --methods anchored
    python benchmarks/deep_sea.py --quick             a sea of size 4, two methods

Rows that are already stored, with the same settings, are not run again; remove the file to run all. The picture is
written next to the stored result.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, TypedDict

import numpy as np
import reporting
from reporting import Json, number

if TYPE_CHECKING:
    from anchored.paper.experiments.deep_sea_study import Setting


class Row(TypedDict):
    """One method in seas of one size."""

    method: str
    size: int
    budget: int  # number of episodes
    solved: list[int | None]  # for each seed, number of episodes until the sea was solved; None if it was not
    found: list[int | None]  # for each seed, number of the episode that first found the treasure
    late: list[float]  # for each seed, share of the last hundred episodes that found the treasure
    seconds: float  # of all seeds, with compilation


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the rows that the command line, `arguments`, selects and that are not stored yet, and draw the picture."""
    from anchored.paper.experiments.deep_sea_study import METHODS, Setting

    sizes = dict(Setting().budgets)
    parser = reporting.parser_of(__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", choices=sizes, default=list(sizes), help="sizes of the sea; default: all"
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="methods to run; default: all")
    parser.add_argument("--seed", type=int, default=0, help="first random seed; default: 0")
    options = parser.parse_args(arguments)
    setting = setting_of(options)
    shared = {name: value for name, value in asdict(setting).items() if name not in ("budgets", "methods")}
    settings = json.loads(json.dumps(shared))
    path = options.out or (None if options.quick else reporting.RESULTS / "deep_sea.json")
    known = reporting.stored_rows(path, settings)
    stored = reporting.run_and_store("deep_sea", options, settings, run(setting, known), tables)
    if path is not None:
        draw(stored["rows"], path.with_suffix(".png"))
    return stored


def setting_of(options: argparse.Namespace) -> "Setting":
    """Return the setting that the `options` of the command line describe."""
    from anchored.paper.experiments.deep_sea_study import Setting

    full = Setting(seed=options.seed)
    if options.quick:
        small = replace(full, n_seeds=2, n_estimators=4, hidden_layer_sizes=(16,), batch_size=32, learning_rate=3e-3)
        return replace(small, budgets=((4, 150),), methods=("anchored", "ε-greedy, narrow prior"))
    budgets = tuple(budget for budget in full.budgets if budget[0] in options.sizes)
    return replace(full, methods=tuple(options.methods), budgets=budgets)


def run(setting: "Setting", known: Sequence[Row] = ()) -> Iterator[Json]:
    """Yield the rows of `setting` so far, in the order of the table; rows in `known` are not run again."""
    from anchored.paper.experiments.deep_sea_study import METHODS

    rows = list(known)
    yield {"rows": rows}
    for method in setting.methods:
        for size, budget in setting.budgets:
            if (method, size, budget) not in map(_row_key, rows):
                rows.append(solve(setting, method, size, budget))
                reporting.note(describe(rows[-1]))
                rows.sort(key=lambda row: (METHODS.index(row["method"]), row["size"]))
                yield {"rows": rows}


def _row_key(row: Row) -> tuple[str, int, int]:
    """Return the method, size and number of episodes of a row, which identify it."""
    return row["method"], row["size"], row["budget"]


def solve(setting: "Setting", method: str, size: int, budget: int) -> Row:
    """Run all seeds of `setting` with a `method` in seas of one `size` for `budget` episodes, in one program."""
    import jax
    import jax.numpy as jnp

    from anchored.paper.experiments.deep_sea_study import configuration, found_treasure, solved_at
    from anchored.rl.training import train

    started = time.perf_counter()
    keys = jax.vmap(jax.random.key)(setting.seed + jnp.arange(setting.n_seeds))
    config = configuration(setting, method, size, budget)
    _, log = jax.block_until_ready(jax.jit(jax.vmap(train, in_axes=(0, None)))(keys, config))
    treasures = found_treasure(log, size)
    return {
        "method": method,
        "size": size,
        "budget": budget,
        "solved": [solved_at(by_episode) for by_episode in treasures],
        "found": [int(np.argmax(by_episode)) + 1 if by_episode.any() else None for by_episode in treasures],
        "late": treasures[:, -100:].mean(1).tolist(),
        "seconds": time.perf_counter() - started,
    }


def slope(rows: Sequence[Row]) -> float | None:
    """Return the slope of log episodes against log size, over the sizes that most seeds solved.

    It is None if there are fewer than two such sizes. `rows` are those of one method.
    """
    sizes, episodes = medians(rows)
    return float(np.polyfit(np.log(sizes), np.log(episodes), 1)[0]) if len(sizes) > 1 else None


def medians(rows: Sequence[Row]) -> tuple[list[int], list[float]]:
    """Return the sizes in `rows` that most seeds solved, and the median number of episodes that these seeds needed."""
    solved = {row["size"]: _episodes(row) for row in rows}
    sizes = [row["size"] for row in rows if 2 * len(solved[row["size"]]) > len(row["solved"])]
    return sizes, [float(np.median(solved[size])) for size in sizes]


def _episodes(row: Row) -> list[int]:
    """Return the numbers of episodes of the seeds that solved the sea."""
    return [episode for episode in row["solved"] if episode is not None]


def describe(row: Row) -> str:
    """Return a row as one line of text."""
    solved = _episodes(row)
    when = f"; median {median(solved):.0f}, {min(solved)} to {max(solved)}" if solved else ""
    outcome = (
        f"{row['method']}, size {row['size']}: {len(solved)} of {len(row['solved'])} within {row['budget']} episodes"
    )
    return f"{outcome}{when} ({row['seconds']:.0f} s)"


def tables(stored: Json) -> dict[str, str]:
    """Return the table of median episodes until solved in `stored`, with the number of seeds that did in brackets."""
    budgets = {row["size"]: row["budget"] for row in stored["rows"]}
    cells: dict[str, dict[int, str]] = {}
    for row in stored["rows"]:
        solved = _episodes(row)
        median_text = f"{number(median(solved), 0)} " if solved else ""
        cells.setdefault(row["method"], {})[row["size"]] = f"{median_text}({len(solved)})"
    header = ("method", *(f"N = {size}, within {number(budget, 0)}" for size, budget in budgets.items()))
    rows = [(method, *(by_size.get(size, "") for size in budgets)) for method, by_size in cells.items()]
    return {"deep_sea": reporting.table(stored, "python benchmarks/deep_sea.py", header, rows)}


def draw(rows: Sequence[Row], path: Path) -> None:
    """Draw the episodes in `rows` against size, both on logarithmic axes, into the PNG file `path`."""
    import matplotlib.pyplot as plt

    from anchored.plots import as_png
    from anchored.storage import atomic

    figure, ax = plt.subplots(figsize=(6.4, 4.4), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for i, method in enumerate(methods):
        rows_of_method = [row for row in rows if row["method"] == method]
        for row in rows_of_method:
            solved = _episodes(row)
            x = row["size"] * 1.02 ** (i - (len(methods) - 1) / 2)
            ax.plot([x] * len(solved), solved, ".", color=f"C{i}", alpha=0.5)
        fitted = slope(rows_of_method)
        label = method + (f" (slope {fitted:.1f})" if fitted is not None else "")
        ax.plot(*medians(rows_of_method), "-", color=f"C{i}", label=label)
    budgets = sorted({(row["size"], row["budget"]) for row in rows})
    ax.plot(*np.array(budgets).T, "k:", label="episodes allowed")
    sizes = [size for size, _ in budgets]
    ax.set(xscale="log", yscale="log", xlabel="size N of the sea", ylabel="episodes until solved")
    ax.set_xticks(sizes, [str(size) for size in sizes], minor=False)
    ax.minorticks_off()
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, as_png(figure))


if __name__ == "__main__":
    main()
