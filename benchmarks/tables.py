"""Our estimator and other libraries, all with their defaults, on the first five standard splits of the nine UCI sets.

    python benchmarks/tables.py --data DIR --python catboost=PYTHON --python ngboost=PYTHON ...
    python benchmarks/tables.py --data DIR --splits 10 --sets boston,concrete,energy,yacht --methods anchored,bde
    python benchmarks/tables.py --data DIR --ablation      our estimator, with one default replaced at a time
    python benchmarks/tables.py --data DIR --quick         two splits of the smallest set, three methods

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. `--python` names the interpreter of an environment in
which a library is installed; libraries that are not installed are left out. Each fit is stored when it is done, and
stored fits are not run again, so that an interrupted run continues if it is started again. `--again METHOD`
drops the stored fits of a method and runs them again.

NLL, CRPS and coverage are those of the distribution that a method predicts: for most a normal distribution, for ours a
distribution of the chosen shape, and for bde the mixture of its draws. A method that predicts only a number gets a
normal distribution, whose variance is the mean square of the residuals of a tenth of the training rows. Each fit runs
in its own process, and seconds are those of `fit`. The ablation uses other splits; its variant with a normal shape is
scored from the fits with the defaults.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import ablation
import fits
import reporting
import rivals
import uci_sets
from reporting import Json, average, mean_and_error, number

Row = Json  # one fit: its method, set and split, its scores and seconds, and the version of the library

COMMAND = "python benchmarks/tables.py --data DIR"
SMALL = ("boston", "concrete", "energy", "wine_red", "yacht")  # fewer than 2,000 rows
SETS = (*SMALL, "kin8nm", "naval", "power", "protein")
METHODS = {  # title in tables, and the sets that the method is fitted to
    "anchored": ("anchored", SETS),
    "bde": ("bde", SMALL),
    "catboost": ("CatBoost", SETS),
    "ngboost": ("NGBoost", SETS),
    "tabm": ("TabM", SMALL),
    "realmlp": ("RealMLP", SETS),
    "hist_gradient_boosting": ("HistGradientBoosting", SETS),
    "gaussian_process": ("Gaussian process", SMALL),
    # MAPIE needs too much memory for protein
    "random_forest": ("random forest with MAPIE", tuple(name for name in SETS if name != "protein")),
    "laplace": ("laplace-torch", SMALL),
}
PREDICTS = {  # the methods of the README's table, and what they predict for a new row
    "anchored": "a distribution with a learnt shape, and its variance in two parts: noise and the model's uncertainty; "
    "on request, intervals with guaranteed coverage; whole functions sampled from the posterior",
    "bde": "samples from the posterior of a network",
    "gaussian_process": "a normal distribution, exact for its kernel; whole functions sampled from the posterior; for "
    "up to a few thousand rows",
    "laplace": "a normal distribution, whose variance is split into noise and the model's uncertainty, for a network "
    "that you have trained",
    "ngboost": "a distribution of the family that you choose; normal by default",
    "catboost": "a mean and a variance; suited to categorical columns with many values",
    "random_forest": "a mean, and intervals with guaranteed coverage",
}
RANKED_SPLITS = 5  # number of splits that the tables of scores and ranks use
SCORES = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE"}  # lower is better


# The command line


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the fits that the command line, `arguments`, selects and that are not stored; return the stored result."""
    options = argument_parser().parse_args(arguments)
    if options.quick:
        options.sets, options.splits = ["yacht"], 2
        options.methods = ["anchored", "hist_gradient_boosting", "gaussian_process"]
    settings = {"random_state": 0, "quick": options.quick}
    known = stored_parts(options.out or (None if options.quick else reporting.RESULTS / "tables.json"), settings)
    return reporting.run_and_store("tables", options, settings, run(options, known), tables)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--splits", type=int, default=RANKED_SPLITS, help="number of standard splits; default: 5")
    parser.add_argument("--sets", type=_some_of(SETS), help="short names, separated by commas; default: all")
    parser.add_argument(
        "--methods", type=_some_of(METHODS), default=list(METHODS), help="names, separated by commas; default: all"
    )
    parser.add_argument(
        "--python",
        type=_interpreter,
        action="append",
        default=[],
        metavar="METHOD=INTERPRETER",
        help="interpreter of an environment in which the library of a method is installed; default: this one",
    )
    parser.add_argument(
        "--again",
        choices=[*METHODS, "ablation"],
        action="append",
        default=[],
        help="a method whose stored fits on the selected sets and splits are dropped and run again; leave it out to "
        "continue a run that was interrupted",
    )
    parser.add_argument(
        "--time-limit", type=float, default=1_800, help="seconds that a fit of another library may take; default: 1800"
    )
    parser.add_argument("--ablation", action="store_true", help="run the ablation instead of the methods")
    return parser


def _some_of(known: Collection[str]) -> Callable[[str], list[str]]:
    """Return a function that reads names separated by commas, all of which must be `known`."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"invalid choice: {name!r} (choose from {', '.join(known)})")
        return names

    return read


def _interpreter(text: str) -> tuple[str, str]:
    """Return the method and the interpreter in `text`, METHOD=INTERPRETER."""
    method, _, interpreter = text.partition("=")
    if method not in rivals.METHODS or not interpreter:
        raise argparse.ArgumentTypeError(f"{text!r} is not METHOD=INTERPRETER with one of {', '.join(rivals.METHODS)}")
    return method, interpreter


def stored_parts(path: Path | None, settings: Json) -> Json:
    """Return the rows of both parts stored in the file `path` by an earlier run with these `settings`."""
    empty: Json = {"rows": [], "ablation": []}
    if path is None or not path.exists():
        return empty
    stored = json.loads(path.read_text())
    return {part: stored[part] for part in empty} if stored["settings"] == settings else empty


def run(options: argparse.Namespace, known: Json) -> Iterator[Json]:
    """Yield both parts so far, starting with the stored ones, `known`; the `options` select the part that runs."""
    part, run_part = ("ablation", ablation.run) if options.ablation else ("rows", run_methods)
    for rows in run_part(options, known[part]):
        yield known | {part: rows}


# Comparison with other libraries


def run_methods(options: argparse.Namespace, known: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows so far, starting with the stored ones, `known`.

    The `options` of the command line select methods, sets and splits, and stored rows that are run again.
    """
    sets = options.sets or SETS
    pairs = [(method, name) for method in options.methods for name in METHODS[method][1] if name in sets]

    def is_dropped(row: Row) -> bool:
        method, name, split = _key(row)
        return method in options.again and (method, name) in pairs and split < options.splits

    rows = [row for row in known if not is_dropped(row)]
    missing: set[str] = set()
    yield rows
    for method, name in pairs:
        try:
            for split in range(options.splits):
                if method not in missing and (method, name, split) not in map(_key, rows):
                    rows.append(fitted_row(method, name, split, options))
                    rows.sort(key=_key)
                    yield rows
        except fits.RivalError as error:
            reporting.note(f"{method} is left out{'' if error.is_missing else f' on {name}'}: {error}")
            missing |= {method} if error.is_missing else set()


def _key(row: Row) -> tuple[str, str, int]:
    """Return the method, the set and the split of a row, which identify it."""
    return row["method"], row["set"], row["split"]


def fitted_row(method: str, name: str, split: int, options: argparse.Namespace) -> Row:
    """Fit a `method` to one `split` of the set called `name`, with the `options`, and return its row."""
    task = fits.load(name, split, options.data)
    if method == "anchored":
        predictive, found = fits.fit_anchored(task, {}, options.quick)
        scored = uci_sets.scores(task["y_test"], predictive)
    else:
        found = fits.fit_rival(method, dict(options.python).get(method, sys.executable), task, options.time_limit)
        scored = fits.rival_scores(task["y_test"], found)
    seconds = float(found["seconds"])
    reporting.note(f"{method}, {name}, split {split}: NLL {scored['nll']:.2f} in {seconds:.1f} s")
    row = {"method": method, "set": name, "split": split, **scored, "seconds": seconds}
    return row | {"version": str(found["version"])}


# Summaries of stored rows


def by_set(stored: Json) -> dict[str, dict[str, list[Row]]]:
    """Return the rows of the first RANKED_SPLITS splits in `stored`, by set and method.

    Methods that were not fitted to all splits of a set are left out there.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    for row in stored["rows"]:
        if row["split"] < RANKED_SPLITS:
            found.setdefault(row["set"], {}).setdefault(row["method"], []).append(row)
    most = {name: max(map(len, methods.values())) for name, methods in found.items()}
    return {
        name: {method: found[name][method] for method in METHODS if len(found[name].get(method, [])) == most[name]}
        for name in uci_sets.NAMES
        if name in found
    }


def ranks(sets: Mapping[str, Mapping[str, Sequence[Row]]], score: str) -> dict[str, list[float]]:
    """Return for each method its ranks by the mean `score`, 1 for the lowest, on all sets that it was fitted to.

    `sets` are as returned by `by_set`.
    """
    from scipy.stats import rankdata

    found: dict[str, list[float]] = {}
    for methods in sets.values():
        means = [average(rows, score) for rows in methods.values()]
        for method, rank in zip(methods, rankdata(means), strict=True):
            found.setdefault(method, []).append(float(rank))
    return found


def compared_with_bde(stored: Json) -> dict[str, tuple[list[Row], list[Row]]]:
    """Return our rows and bde's in `stored`, by set, for all splits that both were fitted to."""
    rows = {_key(row): row for row in stored["rows"]}
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    for (method, name, split), theirs in sorted(rows.items()):
        if method == "bde" and ("anchored", name, split) in rows:
            ours_and_theirs = found.setdefault(name, ([], []))
            ours_and_theirs[0].append(rows["anchored", name, split])
            ours_and_theirs[1].append(theirs)
    return found


def in_words(stored: Json) -> str:
    """Return a sentence that compares all methods by their ranks, and bde with our estimator, from `stored`."""
    sets = by_set(stored)
    of_nll = ranks(sets, "nll")
    order = sorted(of_nll, key=lambda method: fmean(of_nll[method]))
    listed = ", ".join(f"{METHODS[method][0]} {fmean(of_nll[method]):.1f} ({len(of_nll[method])})" for method in order)
    text = (
        f"mean rank by NLL among {len(order)} methods with their defaults, on sets of all sizes (in brackets, the "
        f"number of sets on which a method was run): {listed}"
    )
    pairs = compared_with_bde(stored).values()
    if not pairs:
        return text
    n_better = sum(average(theirs, "nll") < average(ours, "nll") for ours, theirs in pairs)
    factors = [average(theirs, "seconds") / average(ours, "seconds") for ours, theirs in pairs]
    span = f"{min(factors):.0f} to {max(factors):.0f}"
    return (
        f"{text}; bde has a lower NLL than anchored on {n_better} of {len(pairs)} sets, and takes {span} times as long"
    )


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the tables of `stored`: each score, seconds, ranks, bde on more splits, and the ablation."""
    made = {f"rivals_{score}": score_table(stored, score) for score in (*SCORES, "seconds")}
    return made | {
        "rivals_ranks": rank_table(stored),
        "libraries": overview_table(stored),
        "bde": bde_table(stored),
        "ablation": ablation.table(stored),
    }


def score_table(stored: Json, score: str) -> str:
    """Return the table of the means of a `score`, with a column for each method; the best is in bold."""
    sets = by_set(stored)
    shown = [method for method in METHODS if any(method in methods for methods in sets.values())]
    rows = []
    for name, methods in sets.items():
        means = {method: average(rows_of_method, score) for method, rows_of_method in methods.items()}
        n_digits = {"nll": 2, "seconds": 1}.get(score, uci_sets.digits(min(means.values())))
        cells = {method: number(mean, n_digits) for method, mean in means.items()}
        best = cells[min(means, key=lambda method: means[method])] if score in SCORES else None
        bold = {method: f"**{cell}**" if cell == best else cell for method, cell in cells.items()}
        rows.append((uci_sets.title_without_duplicates(name), *(bold.get(method, "") for method in shown)))
    return reporting.table(stored, COMMAND, ("set", *(METHODS[method][0] for method in shown)), rows)


def rank_table(stored: Json) -> str:
    """Return the table of the mean ranks of each method: on all sets that it was fitted to, and on the small ones."""
    sets = by_set(stored)
    small = {name: methods for name, methods in sets.items() if name in SMALL}
    columns = [ranks(some, score) for some in (sets, small) for score in SCORES]
    rows = []
    for method in sorted(columns[0], key=lambda method: fmean(columns[0][method])):
        fitted = [row for methods in sets.values() for row in methods.get(method, [])]
        cells = [f"{fmean(column[method]):.1f}" if method in column else "" for column in columns]
        coverage = f"{100 * average(fitted, 'coverage'):.1f} %"
        rows.append((METHODS[method][0], fitted[-1]["version"], str(len(columns[0][method])), *cells, coverage))
    header = ("method", "version", "sets", *SCORES.values(), *(f"{score}, small sets" for score in SCORES.values()))
    return reporting.table(stored, COMMAND, (*header, "95 % coverage"), rows)


def overview_table(stored: Json) -> str:
    """Return the README's table: what each of PREDICTS predicts, and how well on the small sets, the best first."""
    small = {name: methods for name, methods in by_set(stored).items() if name in SMALL}
    chosen = {name: {m: rows for m, rows in methods.items() if m in PREDICTS} for name, methods in small.items()}
    of_nll, of_rmse = (ranks(chosen, score) for score in ("nll", "rmse"))
    rows = []
    for method in sorted(of_nll, key=lambda method: fmean(of_nll[method])):
        fitted = [row for methods in chosen.values() for row in methods.get(method, [])]
        numbers = (f"{fmean(of_nll[method]):.1f}", f"{fmean(of_rmse[method]):.1f}")
        coverage = f"{100 * average(fitted, 'coverage'):.0f} %"
        rows.append((METHODS[method][0], PREDICTS[method], *numbers, coverage))
    header = ("", "predicts for a new row", "rank by NLL", "rank by RMSE", "95 % intervals cover")
    return reporting.table(stored, COMMAND, header, rows)


def bde_table(stored: Json) -> str:
    """Return the table that compares our estimator with bde, on all splits that both were fitted to."""
    rows = [
        (
            uci_sets.title_without_duplicates(name),
            str(len(ours)),
            mean_and_error(ours, "nll", 2),
            mean_and_error(theirs, "nll", 2),
            number(average(ours, "seconds"), 1),
            number(average(theirs, "seconds"), 1),
            f"{average(theirs, 'seconds') / average(ours, 'seconds'):.1f}",
        )
        for name, (ours, theirs) in compared_with_bde(stored).items()
    ]
    header = ("set", "splits", "NLL", "NLL of bde", "seconds", "seconds of bde", "ratio")
    command = f"{COMMAND} --splits 10 --sets boston,concrete,energy,yacht --methods anchored,bde"
    return reporting.table(stored, command, header, rows) if rows else f"Not run yet: `{command}`."


if __name__ == "__main__":
    main()
