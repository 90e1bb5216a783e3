"""Regression on the nine UCI sets with default settings, without tuning.

    python benchmarks/uci.py --data DIR            the first five standard splits of every set
    python benchmarks/uci.py --data DIR --quick    two splits of the smallest set

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. The negative log-likelihood (NLL) and CRPS are those of
the predictive distribution, in units of y. Seconds are those of `fit`; the first fit of a process includes compilation.
The picture is a histogram of the probability integral transform (PIT) of the test rows of all sets, which is flat if
the predictive distributions are right. The calibration error is the mean of |observed − expected| coverage of central
intervals. `tables.py` compares the same defaults with other libraries.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, average, mean_and_error, number
from uci_sets import NAMES, WITHOUT_DUPLICATES, digits, scores

from anchored.storage import atomic

if TYPE_CHECKING:
    from anchored.datasets import Dataset

# NLL to reach: about what the paper's authors published for anchored ensembles with one hidden layer; for yacht, a goal
# of our own
GOALS = {
    "boston": 2.5,
    "concrete": 2.97,
    "energy": 0.96,
    "kin8nm": -1.09,
    "power": 2.83,
    "wine_red": 0.95,
    "yacht": 0.6,
}
SETS = tuple(name for name in NAMES if name != WITHOUT_DUPLICATES)
COMMAND = "python benchmarks/uci.py --data DIR"
PIT_BINS = 100  # number of bins in which probability integral transforms are counted
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "calibration.png"
BARS = 20  # number of bars in the picture


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the sets that the command line, `arguments`, selects, and draw the picture; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--splits", type=int, default=5, help="number of standard splits; default: 5")
    parser.add_argument("--sets", default=",".join(SETS), help="short names, separated by commas; default: all")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.splits = "yacht", 2
    options.sets = options.sets.split(",")
    settings = {"splits": options.splits, "sets": options.sets, "random_state": 0}
    stored = reporting.run_and_store("uci", options, settings, run(options), tables)
    if options.out or not options.quick:
        draw(pooled_pit(stored), options.out.with_suffix(".png") if options.out else PICTURE)
    return stored


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the rows so far, one for each set that the `options` select."""
    from anchored import datasets

    results: Json = {"regression": []}
    for name in options.sets:
        for dataset in variants(datasets.load(name, options.data)):
            results["regression"].append(regression(dataset, options.splits, options.quick))
            reporting.note(f"{dataset.name}: NLL {results['regression'][-1]['mean']['nll']:.2f}")
            yield results


def regression(dataset: "Dataset", n_splits: int, quick: bool) -> Json:
    """Return the scores of `dataset` on its first `n_splits` standard splits, and their means.

    If `quick`, fits are short.
    """
    from anchored import datasets

    splits, transforms = [], []
    for split in datasets.standard_splits(len(dataset.y), n_splits):
        split_scores, pit = score_split(dataset, *split, quick)
        splits.append(split_scores)
        transforms.append(pit)
    means = {score: average(splits, score) for score in splits[0]}
    counts, _ = np.histogram(np.concatenate(transforms), np.linspace(0, 1, PIT_BINS + 1))
    size = {"N": len(dataset.y), "D": dataset.X.shape[1]}
    return {"set": dataset.name, **size, "mean": means, "splits": splits, "pit": counts.tolist()}


def variants(dataset: "Dataset") -> Iterator["Dataset"]:
    """Yield `dataset`; for red wine, also without its duplicate rows."""
    yield dataset
    if dataset.name == "wine_red":
        yield uci_sets.without_duplicates(dataset)


def score_split(
    dataset: "Dataset", train: np.ndarray, test: np.ndarray, quick: bool = False
) -> tuple[dict[str, float], np.ndarray]:
    """Fit the rows `train` of `dataset` with default settings, briefly if `quick`.

    Returns the scores and the probability integral transforms of its rows `test`. Both are indices of rows.
    """
    from anchored import AnchoredRegressor

    model = AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0)
    started = time.perf_counter()
    model.fit(dataset.X[train], dataset.y[train])
    seconds = time.perf_counter() - started
    predictive = model.predict_dist(dataset.X[test])
    return scores(dataset.y[test], predictive) | {"seconds": seconds}, predictive.cdf(dataset.y[test])


# Calibration


def pooled_pit(stored: Json) -> np.ndarray:
    """Return the number of test rows in each bin of the probability integral transform, (PIT_BINS,).

    Rows of all sets in `stored` are counted, of red wine only in the set without duplicates.
    """
    return np.sum([row["pit"] for row in stored["regression"] if row["set"] != "wine_red"], axis=0)


def calibration_error(counts: np.ndarray) -> float:
    """Return the mean of |observed − expected| coverage of central intervals, from the `counts` of `pooled_pit`."""
    half = len(counts) // 2
    observed = np.cumsum(counts[half:] + counts[half - 1 :: -1]) / counts.sum()
    return float(np.mean(np.abs(observed - np.arange(1, half + 1) / half)))


def draw(counts: np.ndarray, path: Path) -> None:
    """Draw the `counts` of `pooled_pit` as a histogram of BARS bars, into the PNG file `path`."""
    from matplotlib.figure import Figure

    from anchored.plots import BAND_SHADES, INK, as_png

    figure = Figure(figsize=(7, 3.2), layout="constrained")
    ax = figure.subplots()
    heights = counts.reshape(BARS, -1).sum(1) * BARS / counts.sum()
    ax.bar((np.arange(BARS) + 0.5) / BARS, heights, 1 / BARS, color=BAND_SHADES[0], edgecolor="white")
    ax.axhline(1, color=INK, linestyle="--", linewidth=1, label="right distributions")
    ax.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    atomic.write_bytes(path, as_png(figure))


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the sets in `stored`, and a sentence about their calibration."""
    counts = pooled_pit(stored)
    error = f"{100 * calibration_error(counts):.1f} %"
    sentence = f"The calibration error of {counts.sum():,} predictions is {error} (`{COMMAND}`)."
    return {"regression": regression_table(stored), "calibration": sentence}


def regression_table(stored: Json) -> str:
    """Return the table of the UCI sets in `stored`."""
    order = list(NAMES)
    rows = [
        (
            NAMES[row["set"]],
            f"{row['N']:,}",
            str(row["D"]),
            mean_and_error(row["splits"], "rmse", digits(row["mean"]["rmse"])),
            mean_and_error(row["splits"], "nll", 2),
            mean_and_error(row["splits"], "crps", digits(row["mean"]["crps"])),
            f"{row['mean']['coverage']:.1%}".replace("%", " %"),
            f"{row['mean']['seconds']:.1f}",
            number(GOALS[row["set"]], 2) if row["set"] in GOALS else "",
        )
        for row in sorted(stored["regression"], key=lambda row: order.index(row["set"]))
    ]
    header = ("set", "N", "D", "RMSE", "NLL", "CRPS", "95 % coverage", "seconds per fit", "NLL goal")
    return reporting.table(stored, COMMAND, header, rows)


if __name__ == "__main__":
    main()
