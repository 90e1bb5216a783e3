"""The ablation of `tables.py`: our defaults compared with variants, each of which replaces one default."""

import argparse
from collections.abc import Iterator, Mapping, Sequence

import fits
import numpy as np
import reporting
import uci_sets
from reporting import Json

SETS = ("boston", "concrete", "energy", "wine_red", "yacht", "kin8nm")
SPLITS = range(5, 8)  # numbers of the splits, other than those of the tables of scores and ranks
DEFAULTS, NORMAL_SHAPE = "defaults", "normal shape"
VARIANTS: dict[str, Json] = {  # arguments that replace the defaults, by name of the variant
    DEFAULTS: {},
    "inputs not encoded": {"input_encoding": "standard"},
    "one layer of 50": {"hidden_layer_sizes": (50,)},
    "prior scale 2": {"prior_scale": 2.0},
    "800 epochs": {"max_iter": 800},
}
QUICK_VARIANTS = (DEFAULTS, "inputs not encoded")


def run(options: argparse.Namespace, known: Sequence[Json]) -> Iterator[list[Json]]:
    """Yield the rows so far, starting with those of an earlier run, `known`.

    The `options` of the command line select sets, and known rows that are run again.
    """
    sets = [name for name in SETS if name in (options.sets or SETS)]
    splits, variants = (SPLITS[:1], QUICK_VARIANTS) if options.quick else (SPLITS, tuple(VARIANTS))
    rows = [row for row in known if not ("ablation" in options.again and row["set"] in sets)]
    yield rows
    for key in ((variant, name, split) for name in sets for split in splits for variant in variants):
        if key not in by_key(rows):
            rows += fitted_rows(*key, options)
            yield rows


def by_key(rows: Sequence[Json]) -> dict[tuple[str, str, int], Json]:
    """Return the `rows` by variant, set and split, which identify a row."""
    return {(row["variant"], row["set"], row["split"]): row for row in rows}


def fitted_rows(variant: str, name: str, split: int, options: argparse.Namespace) -> list[Json]:
    """Fit a `variant` to one `split` of the set called `name`, and return its row.

    For the defaults, a second row has the scores of the normal distribution with the same mean and variance. The
    `options` give the folder of the data, and whether to train briefly.
    """
    task = fits.load(name, split, options.data)
    predictive, found = fits.fit_anchored(task, VARIANTS[variant], options.quick)
    scores = {variant: uci_sets.scores(task["y_test"], predictive)}
    if variant == DEFAULTS:
        scores[NORMAL_SHAPE] = uci_sets.normal_scores(task["y_test"], predictive.mean, predictive.std)
    reporting.note(f"{variant}, {name}, split {split}: NLL {scores[variant]['nll']:.2f} in {found['seconds']:.1f} s")
    return [{"variant": v, "set": name, "split": split, **scores[v], "seconds": found["seconds"]} for v in scores]


def table(stored: Json) -> str:
    """Return the table of how much worse or better each variant in `stored` is than the defaults.

    Each cell has the mean change of the NLL and, in brackets, of RMSE and seconds.
    """
    command = "python benchmarks/tables.py --data DIR --ablation"
    if not stored["ablation"]:
        return f"Not run yet: `{command}`."
    rows = by_key(stored["ablation"])
    variants = [name for name in (NORMAL_SHAPE, *VARIANTS) if name != DEFAULTS]
    changes = {(variant, name): changes_of(rows, variant, name) for variant in variants for name in SETS}
    means = {key: np.mean(by_split, axis=0) for key, by_split in changes.items() if by_split}
    lines = [
        (uci_sets.title_without_duplicates(name), *(_cell(means.get((variant, name))) for variant in variants))
        for name in SETS
        if any((variant, name) in means for variant in variants)
    ]
    by_variant = [[means[variant, name] for name in SETS if (variant, name) in means] for variant in variants]
    lines.append(("mean", *(_cell(np.mean(by_set, axis=0) if by_set else None) for by_set in by_variant)))
    return reporting.table(stored, command, ("set", *variants), lines)


def changes_of(rows: Mapping[tuple[str, str, int], Json], variant: str, name: str) -> list[tuple[float, float, float]]:
    """Return how a `variant` differs from the defaults on the set called `name`: one tuple for each split in `rows`.

    The numbers are the changes of NLL, of RMSE in per cent, and of seconds.
    """
    return [
        (row["nll"] - default["nll"], 100 * (row["rmse"] / default["rmse"] - 1), row["seconds"] - default["seconds"])
        for split in SPLITS
        if (row := rows.get((variant, name, split))) and (default := rows.get((DEFAULTS, name, split)))
    ]


def _cell(change: np.ndarray | None) -> str:
    """Return the cell of a mean `change`; empty if there is none."""
    if change is None:
        return ""
    nll, percent, seconds = (f"{value:+.{n}f}".replace("-", "−") for value, n in zip(change, (2, 1, 1), strict=True))
    return f"{nll} ({percent} %, {seconds} s)"
