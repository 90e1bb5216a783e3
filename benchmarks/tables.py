"""Our defaults beside other libraries at theirs: the first five standard splits of the nine UCI sets.

    python benchmarks/tables.py --data DIR --python catboost=PYTHON --python ngboost=PYTHON ...
    python benchmarks/tables.py --data DIR --splits 10 --sets boston,concrete,energy,yacht --methods anchored,bde
    python benchmarks/tables.py --data DIR --ablation      our defaults, with one thing taken away at a time
    python benchmarks/tables.py --data DIR --quick         two splits of the smallest set, three methods

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. `--python` names the interpreter of an environment that
has a library; one that is not installed is left out. Each fit is stored when it is done, and fits that are stored are
not run again: a run that was interrupted continues if it is started again. `--again METHOD` runs a method anew.

NLL, CRPS and coverage are those of the method's own density: normal for most, for ours with the chosen shape, and for
bde the mixture of its draws. Methods that predict only a number get a normal, whose variance is the mean square of the
residuals of a tenth of the training rows. Each fit has a process of its own, and seconds are those of `fit`. The
ablation is measured on other splits, and scores the normal with mean and variance of the defaults without a new fit.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
import reporting
import rivals
import uci_sets
from reporting import Json, average, mean_and_error, number
from uci_sets import NAMES, WITHOUT_DUPLICATES, normal_scores, scores

if TYPE_CHECKING:
    from anchored.datasets import Dataset
    from anchored.model.predictive import Predictive

    Row = Json  # a set, a split, and a method or a variant, with the scores and seconds of the fit

COMMAND = "python benchmarks/tables.py --data DIR"
SMALL = ("boston", "concrete", "energy", "wine_red", "yacht")  # fewer than 2,000 rows
SETS = (*SMALL, "kin8nm", "naval", "power", "protein")
METHODS = {  # titles in tables, and sets
    "anchored": ("anchored", SETS),
    "bde": ("bde", SMALL),
    "catboost": ("CatBoost", SETS),
    "ngboost": ("NGBoost", SETS),
    "tabm": ("TabM", SMALL),
    "realmlp": ("RealMLP", SETS),
    "hist_gradient_boosting": ("HistGradientBoosting", SETS),
    "gaussian_process": ("Gaussian process", SMALL),
}
RANKED_SPLITS = 5  # tables of scores and ranks use only these
SCORES = {"nll": "NLL", "crps": "CRPS", "rmse": "RMSE"}  # lower is better

DEFAULTS, NORMAL_SHAPE = "defaults", "normal shape"
VARIANTS: dict[str, Json] = {  # arguments in place of the defaults
    DEFAULTS: {},
    "inputs not encoded": {"input_encoding": "standard"},
    "one layer of 50": {"hidden_layer_sizes": (50,)},
    "prior scale 2": {"prior_scale": 2.0},
    "800 epochs": {"max_iter": 800},
}
ABLATION_SETS = (*SMALL, "kin8nm")
ABLATION_SPLITS = range(5, 8)  # not those of the other tables
QUICK_VARIANTS = (DEFAULTS, "inputs not encoded")
ABLATION = "ablation"


class RivalError(Exception):
    """A rival's fit failed; `is_missing` if it, or its interpreter, is not installed."""

    def __init__(self, reason: str, is_missing: bool = False):
        super().__init__(reason)
        self.is_missing = is_missing


# The command line


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the fits that the command line, `arguments`, selects and that are not stored yet; return what is stored."""
    options = parser().parse_args(arguments)
    if options.quick:
        options.sets, options.splits = ["yacht"], 2
        options.methods = ["anchored", "hist_gradient_boosting", "gaussian_process"]
    settings = {"random_state": 0, "quick": options.quick}
    known = stored_parts(options.out or (None if options.quick else reporting.RESULTS / "tables.json"), settings)
    return reporting.run_and_store("tables", options, settings, run(options, known), tables)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = reporting.parser_of(__doc__)
    uci_sets.add_data_option(made)
    made.add_argument("--splits", type=int, default=RANKED_SPLITS, help="number of standard splits; default: 5")
    made.add_argument("--sets", type=_some_of(SETS), help="short names, separated by commas; default: all")
    made.add_argument(
        "--methods", type=_some_of(METHODS), default=list(METHODS), help="names, separated by commas; default: all"
    )
    made.add_argument(
        "--python",
        type=_interpreter,
        action="append",
        default=[],
        metavar="METHOD=INTERPRETER",
        help="interpreter of an environment with the library of a method; default: this one",
    )
    made.add_argument(
        "--again",
        choices=[*METHODS, ABLATION],
        action="append",
        default=[],
        help="a method whose fits are run again on the sets and splits selected, even if they are stored",
    )
    made.add_argument("--time-limit", type=float, default=1_800, help="seconds for a fit of a rival; default: 1800")
    made.add_argument("--ablation", action="store_true", help="run the ablation instead of the methods")
    return made


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
    """Read METHOD=INTERPRETER."""
    method, _, interpreter = text.partition("=")
    if method not in rivals.METHODS or not interpreter:
        raise argparse.ArgumentTypeError(f"{text!r} is not METHOD=INTERPRETER with one of {', '.join(rivals.METHODS)}")
    return method, interpreter


def stored_parts(path: Path | None, settings: Json) -> Json:
    """Return the rows of both parts stored in the file `path` by an earlier run with these `settings`."""
    empty: Json = {"rows": [], ABLATION: []}
    if path is None or not path.exists():
        return empty
    stored = json.loads(path.read_text())
    return {part: stored[part] for part in empty} if stored["settings"] == settings else empty


def run(options: argparse.Namespace, known: Json) -> Iterator[Json]:
    """Yield both parts so far, starting with those in `known`, as the `options` say."""
    return run_ablation(options, known) if options.ablation else run_methods(options, known)


# Comparison with other libraries


def run_methods(options: argparse.Namespace, known: Json) -> Iterator[Json]:
    """Yield both parts so far; the rows of the methods in `known` are not run again unless the `options` say so."""
    sets = options.sets or SETS
    selected = [
        (method, name) for method in options.methods for name in SETS if name in sets and name in METHODS[method][1]
    ]

    def is_again(row: "Row") -> bool:
        method, name, split = _key(row)
        return method in options.again and (method, name) in selected and split < options.splits

    rows = [row for row in known["rows"] if not is_again(row)]
    missing: set[str] = set()
    yield known | {"rows": rows}
    for method, name in selected:
        try:
            for split in range(options.splits):
                if method not in missing and (method, name, split) not in map(_key, rows):
                    rows.append(fitted_row(method, name, split, options))
                    rows.sort(key=_key)
                    yield known | {"rows": rows}
        except RivalError as error:
            reporting.note(f"{method} is left out{'' if error.is_missing else f' on {name}'}: {error}")
            missing |= {method} if error.is_missing else set()


def _key(row: "Row") -> tuple[str, str, int]:
    """Return the method, or variant, the set and the split of a row, which identify it."""
    return row["method"], row["set"], row["split"]


def fitted_row(method: str, name: str, split: int, options: argparse.Namespace) -> "Row":
    """Fit a `method` to one `split` of the set called `name`, as the `options` say, and return its row."""
    dataset, train, test = load(name, split, options)
    if method == "anchored":
        predictive, found = fit_anchored(dataset, train, test, {}, options.quick)
        scored = scores(dataset.y[test], predictive)
    else:
        interpreter = dict(options.python).get(method, sys.executable)
        task = {"X": dataset.X[train], "y": dataset.y[train], "X_test": dataset.X[test], "y_test": dataset.y[test]}
        found = fit_rival(method, interpreter, task, options.time_limit)
        scored = rival_scores(dataset.y[test], found)
    row = {"method": method, "set": name, "split": split, "version": str(found["version"]), **scored}
    row["seconds"] = float(found["seconds"])
    reporting.note(f"{method}, {name}, split {split}: NLL {row['nll']:.2f} in {row['seconds']:.1f} s")
    return row


def load(name: str, split: int, options: argparse.Namespace) -> tuple["Dataset", np.ndarray, np.ndarray]:
    """Return the set called `name`, without duplicate rows of wine, and the training and test rows of a `split`."""
    from anchored import datasets

    dataset = datasets.load(name, options.data)
    if name == "wine_red":
        dataset = uci_sets.without_duplicates(dataset)
    return dataset, *datasets.standard_splits(len(dataset.y), split + 1)[split]


def fit_anchored(
    dataset: "Dataset", train: np.ndarray, test: np.ndarray, changes: Json, quick: bool
) -> tuple["Predictive", Json]:
    """Fit our estimator in a new process, briefly and in this process if `quick`; `changes` replace its defaults.

    Returns the predictive distribution of the rows `test` of `dataset`, and the seconds and the version.
    """
    work = (dataset.X[train], dataset.y[train], dataset.X[test], changes)
    if quick:
        return _fit_anchored(*work[:3], uci_sets.QUICK | changes)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_fit_anchored, *work).result()


def _fit_anchored(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, arguments: Json) -> tuple["Predictive", Json]:
    """Fit our estimator with these `arguments` to `X` and `y`; returns as above, for the rows `X_test`."""
    import anchored

    model = anchored.AnchoredRegressor(**arguments, random_state=0)
    started = time.perf_counter()
    model.fit(X, y)
    found = {"seconds": time.perf_counter() - started, "version": anchored.__version__}
    return model.predict_dist(X_test), found


def fit_rival(method: str, interpreter: str, task: Mapping[str, np.ndarray], time_limit: float) -> Json:
    """Run the arrays `task` with the `interpreter` of a `method`, and return the arrays that `rivals.py` made.

    Raises a RivalError with the reason and the remedy if that fails, or takes more than `time_limit` seconds.
    """
    remedy = f"`{interpreter} -m pip install {rivals.METHODS[method][1]}`, or pass --python {method}=INTERPRETER"
    with tempfile.TemporaryDirectory() as folder:
        task_path, result_path = str(Path(folder, "task.npz")), str(Path(folder, "result.npz"))
        np.savez(task_path, **task)
        try:
            run_script(interpreter, [method, task_path, result_path], time_limit)
        except FileNotFoundError as error:
            raise RivalError(f"there is no interpreter {interpreter}; pass another --python", True) from error
        except subprocess.TimeoutExpired as error:
            reason = f"a fit takes more than {time_limit:.0f} s; raise --time-limit, or leave it out by --methods"
            raise RivalError(reason) from error
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
            raise RivalError(f"{reason}; {remedy}", reason.startswith("ModuleNotFoundError")) from error
        with np.load(result_path) as arrays:
            return dict(arrays)


def run_script(interpreter: str, arguments: list[str], time_limit: float) -> None:
    """Run `rivals.py` with its `arguments` by an `interpreter`, for `time_limit` seconds at most."""
    command = [interpreter, str(Path(rivals.__file__)), *arguments]
    subprocess.run(command, capture_output=True, text=True, check=True, timeout=time_limit)


def rival_scores(y: np.ndarray, found: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Return the scores of a rival's predictions of `y`, (rows,), which are the arrays `found` of `rivals.py`."""
    from anchored import metrics

    if "std" in found:
        return normal_scores(y, found["mean"], found["std"])
    return {
        "rmse": float(metrics.root_mean_squared_error(y, found["mean"])),
        "nll": -float(found["log_density"].mean()),
        "crps": metrics.sample_crps(y, found["samples"]),
        "coverage": metrics.coverage(y, *np.quantile(found["samples"], [0.025, 0.975], axis=0)),
    }


# Ablation


def run_ablation(options: argparse.Namespace, known: Json) -> Iterator[Json]:
    """Yield both parts so far; fits of the ablation in `known` are not run again unless the `options` say so."""
    sets = [name for name in ABLATION_SETS if name in (options.sets or ABLATION_SETS)]
    splits, variants = (ABLATION_SPLITS[:1], QUICK_VARIANTS) if options.quick else (ABLATION_SPLITS, tuple(VARIANTS))
    rows = [row for row in known[ABLATION] if not (ABLATION in options.again and _key(row)[1] in sets)]
    yield known | {ABLATION: rows}
    for name in sets:
        for split in splits:
            for variant in variants:
                if (variant, name, split) not in map(_key, rows):
                    rows += variant_rows(variant, name, split, options)
                    yield known | {ABLATION: rows}


def variant_rows(variant: str, name: str, split: int, options: argparse.Namespace) -> list["Row"]:
    """Fit a `variant` to one `split` of the set called `name`; return its row, and that of a normal of the defaults."""
    dataset, train, test = load(name, split, options)
    predictive, found = fit_anchored(dataset, train, test, VARIANTS[variant], options.quick)
    y, fit = dataset.y[test], {"set": name, "split": split, "seconds": found["seconds"]}
    rows = [fit | {"method": variant, **scores(y, predictive)}]
    if variant == DEFAULTS:
        rows.append(fit | {"method": NORMAL_SHAPE, **normal_scores(y, predictive.mean, predictive.std)})
    reporting.note(f"{variant}, {name}, split {split}: NLL {rows[0]['nll']:.2f} in {found['seconds']:.1f} s")
    return rows


# Summaries of stored rows


def by_set(stored: Json) -> dict[str, dict[str, list["Row"]]]:
    """Return the rows of the first splits of each set, by method, of those methods that have all splits of the set."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in stored["rows"]:
        if row["split"] < RANKED_SPLITS:
            found.setdefault(row["set"], {}).setdefault(row["method"], []).append(row)
    most = {name: max(map(len, methods.values())) for name, methods in found.items()}
    return {
        name: {method: found[name][method] for method in METHODS if len(found[name].get(method, [])) == most[name]}
        for name in NAMES
        if name in found
    }


def ranks(sets: Mapping[str, Mapping[str, Sequence["Row"]]], score: str) -> dict[str, list[float]]:
    """Return the ranks of each method by the mean of a `score`, 1 for the lowest, on those of `sets` that have it."""
    from scipy.stats import rankdata

    found: dict[str, list[float]] = {}
    for methods in sets.values():
        means = [average(rows, score) for rows in methods.values()]
        for method, rank in zip(methods, rankdata(means), strict=True):
            found.setdefault(method, []).append(float(rank))
    return found


def beside_bde(stored: Json) -> dict[str, tuple[list["Row"], list["Row"]]]:
    """Return our rows and bde's of each set, on all splits that both have."""
    rows = {_key(row): row for row in stored["rows"]}
    found: dict[str, tuple[list[Row], list[Row]]] = {}
    for (method, name, split), theirs in sorted(rows.items()):
        if method == "bde" and ("anchored", name, split) in rows:
            ours_and_theirs = found.setdefault(name, ([], []))
            ours_and_theirs[0].append(rows["anchored", name, split])
            ours_and_theirs[1].append(theirs)
    return found


def in_words(stored: Json) -> str:
    """Return a phrase that compares all methods by their ranks, and bde with us, from the rows in `stored`."""
    sets = by_set(stored)
    of_nll = ranks(sets, "nll")
    order = sorted(of_nll, key=lambda method: fmean(of_nll[method]))
    listed = ", ".join(f"{METHODS[method][0]} {fmean(of_nll[method]):.1f}" for method in order)
    text = f"mean rank by NLL on {len(sets)} UCI sets, each library with its defaults: {listed}"
    pairs = beside_bde(stored).values()
    if not pairs:
        return text
    n_better = sum(average(theirs, "nll") < average(ours, "nll") for ours, theirs in pairs)
    factors = [average(theirs, "seconds") / average(ours, "seconds") for ours, theirs in pairs]
    span = f"{min(factors):.0f} to {max(factors):.0f}"
    return f"{text}; the sampler bde has a lower NLL on {n_better} of {len(pairs)} sets, in {span} times the time"


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the tables of `stored`: each score, seconds, ranks, bde on more splits, and the ablation."""
    made = {f"rivals_{score}": score_table(stored, score) for score in (*SCORES, "seconds")}
    return made | {"rivals_ranks": rank_table(stored), "bde": bde_table(stored), ABLATION: ablation_table(stored)}


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
        rows.append((_title(name), *(bold.get(method, "") for method in shown)))
    return reporting.table(stored, COMMAND, ("set", *(METHODS[method][0] for method in shown)), rows)


def rank_table(stored: Json) -> str:
    """Return the table of the mean ranks of each method: on all sets that it has, and on the small ones."""
    sets = by_set(stored)
    small = {name: methods for name, methods in sets.items() if name in SMALL}
    columns = [ranks(some, score) for some in (sets, small) for score in SCORES]
    rows = []
    for method in sorted(columns[0], key=lambda method: fmean(columns[0][method])):
        fits = [row for methods in sets.values() for row in methods.get(method, [])]
        cells = [f"{fmean(column[method]):.1f}" if method in column else "" for column in columns]
        coverage = f"{100 * average(fits, 'coverage'):.1f} %"
        rows.append((METHODS[method][0], fits[-1]["version"], str(len(columns[0][method])), *cells, coverage))
    header = ("method", "version", "sets", *SCORES.values(), *(f"{score}, small sets" for score in SCORES.values()))
    return reporting.table(stored, COMMAND, (*header, "95 % coverage"), rows)


def bde_table(stored: Json) -> str:
    """Return the table of bde's mixture and our distribution, on all splits that both have."""
    rows = [
        (
            _title(name),
            str(len(ours)),
            mean_and_error(ours, "nll", 2),
            mean_and_error(theirs, "nll", 2),
            number(average(ours, "seconds"), 1),
            number(average(theirs, "seconds"), 1),
            f"{average(theirs, 'seconds') / average(ours, 'seconds'):.1f}",
        )
        for name, (ours, theirs) in beside_bde(stored).items()
    ]
    header = ("set", "splits", "NLL", "NLL of bde", "seconds", "seconds of bde", "ratio")
    command = f"{COMMAND} --splits 10 --sets boston,concrete,energy,yacht --methods anchored,bde"
    return reporting.table(stored, command, header, rows)


def ablation_table(stored: Json) -> str:
    """Return the table of changes against the defaults: of NLL, and in brackets of RMSE and of seconds."""
    rows = {_key(row): row for row in stored[ABLATION]}
    variants = [name for name in (NORMAL_SHAPE, *VARIANTS) if name != DEFAULTS]
    changes = {
        (variant, name): [
            _change(row, rows[DEFAULTS, name, split])
            for (of, at, split), row in rows.items()
            if (of, at) == (variant, name) and (DEFAULTS, name, split) in rows
        ]
        for variant in variants
        for name in ABLATION_SETS
    }
    means = {key: np.mean(found, axis=0) for key, found in changes.items() if found}
    sets = [name for name in ABLATION_SETS if any((variant, name) in means for variant in variants)]
    lines = [(_title(name), *(_signed(means.get((variant, name))) for variant in variants)) for name in sets]
    on_average = [[means[variant, name] for name in sets if (variant, name) in means] for variant in variants]
    lines.append(("mean", *(_signed(np.mean(found, axis=0) if found else None) for found in on_average)))
    return reporting.table(stored, "python benchmarks/tables.py --data DIR --ablation", ("set", *variants), lines)


def _title(name: str) -> str:
    """Return the name in tables of the set called `name`; wine is always without duplicate rows."""
    return NAMES[WITHOUT_DUPLICATES if name == "wine_red" else name]


def _change(row: "Row", default: "Row") -> tuple[float, float, float]:
    """Return the change of NLL, of RMSE in per cent and of seconds from the row `default`."""
    percent = 100 * (row["rmse"] / default["rmse"] - 1)
    return row["nll"] - default["nll"], percent, row["seconds"] - default["seconds"]


def _signed(change: np.ndarray | None) -> str:
    """Return the cell of a mean `change`, or an empty one."""
    if change is None:
        return ""
    nll, percent, seconds = (f"{value:+.{n}f}".replace("-", "−") for value, n in zip(change, (2, 1, 1), strict=True))
    return f"{nll} ({percent} %, {seconds} s)"


if __name__ == "__main__":
    main()
