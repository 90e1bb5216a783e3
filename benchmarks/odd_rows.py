"""Does one odd row spoil the intervals of the others? Fits with default settings to tables with one deliberate oddity.

    python benchmarks/odd_rows.py            tables of 300 and 2,000 rows, ten seeds each
    python benchmarks/odd_rows.py --quick    one seed of one oddity, 100 rows, short training

Coverage is the share of targets that lie in their 95 % intervals, among 2,000 new rows without the oddity. Skewed
targets have 90 % intervals, and 5 % of them should lie below and 5 % above. Stored fits are not run again, so that an
interrupted run continues if it is started again.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
import reporting
import uci_sets
from reporting import Json

N_NEW = 2_000  # number of new rows
SIZES = (300, 2_000)  # numbers of rows that are fitted
NOISE = 20.0  # standard deviation of the noise
Table = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]  # X and y to fit, X and y of new rows


# Tables: each function draws a table with `n_rows` rows to fit, using `rng`


def line(rng: np.random.Generator, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two standard normal columns, (rows, 2), and targets, (rows,): three times the first column plus noise."""
    X = rng.normal(size=(n_rows, 2))
    return X, 3 * X[:, 0] + NOISE * rng.normal(size=n_rows)


def flag(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table with a column that is 1 in one row, and 0 in all others."""
    (X, y), (X_new, y_new) = line(rng, n_rows), line(rng, N_NEW)
    X[:, 1], X_new[:, 1] = np.arange(n_rows) == 0, 0
    return X, y, X_new, y_new


def typo_in_x(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table with a value of 100 in a standard normal column."""
    X, y = line(rng, n_rows)
    X[0, 0] = 100
    return X, y, *line(rng, N_NEW)


def typo_in_y(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table with one target that is 200 standard deviations of the noise too large."""
    X, y = line(rng, n_rows)
    y[0] += 200 * NOISE
    return X, y, *line(rng, N_NEW)


def every_row_twice(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table of half as many different rows, each twice."""
    X, y = line(rng, n_rows // 2)
    return np.repeat(X, 2, axis=0), np.repeat(y, 2), *line(rng, N_NEW)


def empty_cell(rng: np.random.Generator, n_rows: int) -> Table:
    """Return the encoded columns of a CSV file with one empty cell."""
    (X, y), (X_new, y_new) = line(rng, n_rows), line(rng, N_NEW)
    cells = [["" if (i, j) == (0, 1) else repr(float(X[i, j])) for i in range(n_rows)] for j in range(2)]
    return _encoded(cells, y, [[repr(float(value)) for value in column] for column in X_new.T], y_new)


def one_off_categories(rng: np.random.Generator, n_rows: int) -> Table:
    """Return the encoded columns of a CSV file with two frequent categories, and three that occur in one row each."""
    (X, y), (X_new, y_new) = line(rng, n_rows), line(rng, N_NEW)
    kinds, new_kinds = ([("red", "blue")[int(value > 0)] for value in column] for column in (X[:, 1], X_new[:, 1]))
    kinds[:3] = ["green", "violet", "brown"]
    cells, new_cells = ([[repr(float(v)) for v in part[:, 0]], k] for part, k in ((X, kinds), (X_new, new_kinds)))
    return _encoded(cells, y, new_cells, y_new)


def _encoded(columns: list[list[str]], y: np.ndarray, new_columns: list[list[str]], y_new: np.ndarray) -> Table:
    """Return a table whose `columns` and `new_columns`, cells of CSV files, are encoded as `anchored fit` does."""
    from anchored.tables.files import open_table
    from anchored.tables.schema import Schema

    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for cells in (columns, new_columns):
            path = Path(folder, "table.csv")
            path.write_text("\n".join(["a,b", *map(",".join, zip(*cells, strict=True))]) + "\n")
            table = open_table(path)
            parts.append(table.read(table.names))
        schema = Schema.infer(parts[0])
        return schema.encode(parts[0])[0], y, schema.encode(parts[1])[0], y_new


def log_normal(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table of positive targets with log-normal noise, whose scale grows with the first column."""
    return _skewed(rng, n_rows, lambda n: rng.lognormal(0, 0.7, n))


def gamma(rng: np.random.Generator, n_rows: int) -> Table:
    """Return a table of positive targets with gamma noise, whose scale grows with the first column."""
    return _skewed(rng, n_rows, lambda n: rng.gamma(2, 1, n))


def _skewed(rng: np.random.Generator, n_rows: int, noise: Callable[[int], np.ndarray]) -> Table:
    """Return a table whose targets are exp(x/2) times noise; `noise(n)` draws the noise of n rows."""
    X, X_new = rng.normal(size=(n_rows, 2)), rng.normal(size=(N_NEW, 2))
    return X, np.exp(X[:, 0] / 2) * noise(n_rows), X_new, np.exp(X_new[:, 0] / 2) * noise(N_NEW)


ODD = {
    "a flag in one row": flag,
    "an empty cell": empty_cell,
    "one-off categories": one_off_categories,
    "a typo in X": typo_in_x,
    "a typo in y": typo_in_y,
    "every row twice": every_row_twice,
}
SKEWED = {"log-normal targets": log_normal, "gamma targets": gamma}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run with the options of the command line, `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="number of random seeds; default: 10")
    options = parser.parse_args(arguments)
    settings = {"seeds": 1 if options.quick else options.seeds}
    path = options.out or (None if options.quick else reporting.RESULTS / "odd_rows.json")
    results = run(options, reporting.stored_rows(path, settings), **settings)
    return reporting.run_and_store("odd_rows", options, settings, results, tables)


def run(options: argparse.Namespace, known: list[Json], seeds: int) -> Iterator[Json]:
    """Yield the results so far: one for each oddity, number of rows and random seed below `seeds`.

    Fits that are among the stored rows, `known`, are not run again; the `options` say whether the run is quick.
    """
    rows = {(row["case"], row["n_rows"], row["seed"]): row for row in known}
    cases = {"a flag in one row": flag} if options.quick else ODD | SKEWED
    fits = [
        (case, n_rows, seed)
        for case in cases
        for n_rows in ((100,) if options.quick else SIZES)
        for seed in range(seeds)
    ]
    for case, n_rows, seed in fits:
        if (case, n_rows, seed) not in rows:
            table = cases[case](np.random.default_rng([seed, n_rows]), n_rows)
            found = fit_and_score(table, case in SKEWED, options.quick)
            rows[case, n_rows, seed] = {"case": case, "n_rows": n_rows, "seed": seed, **found}
            reporting.note(f"{case}, {n_rows} rows, seed {seed}: coverage {found['coverage']:.3f}")
        yield {"rows": [rows[fit] for fit in fits if fit in rows]}


def fit_and_score(table: Table, skewed: bool, quick: bool) -> dict[str, float]:
    """Fit `table` with default settings, briefly if `quick`; intervals are 90 % instead of 95 % if it is `skewed`.

    Returns `coverage`, the share of new targets in their intervals, and the shares `below` and `above` them. `doubt` is
    the members' standard deviation at the first row, the odd one, divided by its median over new rows.
    """
    from anchored import AnchoredRegressor

    X, y, X_new, y_new = table
    model = AnchoredRegressor(**(uci_sets.QUICK if quick else {}), random_state=0).fit(X, y)
    lower, upper = model.predict_interval(X_new, 0.9 if skewed else 0.95)
    odd, ordinary = (model.predict_dist(part).epistemic_variance for part in (X[:1], X_new))
    return {
        "coverage": float(np.mean((lower <= y_new) & (y_new <= upper))),
        "below": float(np.mean(y_new < lower)),
        "above": float(np.mean(y_new > upper)),
        "doubt": float(np.sqrt(odd[0] / np.median(ordinary))),
    }


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the cases in `stored`."""
    cases: dict[tuple[str, int], list[Json]] = {}
    for row in stored["rows"]:
        cases.setdefault((row["case"], row["n_rows"]), []).append(row)
    cells = [
        (
            name,
            f"{n_rows:,}",
            f"{100 * fmean(row['coverage'] for row in rows):.1f} %",
            f"{100 * min(row['coverage'] for row in rows):.1f} to {100 * max(row['coverage'] for row in rows):.1f} %",
            f"{100 * fmean(row['below'] for row in rows):.1f} %, {100 * fmean(row['above'] for row in rows):.1f} %",
            f"{fmean(row['doubt'] for row in rows):.1f}",
        )
        for (name, n_rows), rows in cases.items()
    ]
    header = (
        "oddity",
        "rows",
        "covered",
        "worst to best",
        "below, above",
        "members' s.d. at the odd row / at other rows",
    )
    command = f"python benchmarks/odd_rows.py --seeds {stored['settings']['seeds']}"
    return {"odd_rows": reporting.table(stored, command, header, cells)}


if __name__ == "__main__":
    main()
