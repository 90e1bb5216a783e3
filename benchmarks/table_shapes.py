"""Tables as people write them: real-world shapes of numbers, dates, categories and files, each with its clean form.

`SHAPES` names the ways in which one column of a table of houses is written. The test of the encoded matrices uses them
all, and `python benchmarks/table_shapes.py` fits each shape and its clean form, and compares their errors.
"""

import argparse
import gzip
import tempfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import reporting
import uci_sets
from reporting import Json

N_ROWS = 400
DAY = date(2021, 1, 1)
Values = list  # of one column: numbers, dates, times or labels; None is a missing value


class Shape(NamedTuple):
    """A way of writing one column: the column's name, and a function from a value and its row number to text."""

    column: str
    write: Callable[[object, int], str]


def grouped(value: float, mark: str, decimal: str = ".", digits: int = 1) -> str:
    """Return `value` with a mark between thousands, and with a decimal mark."""
    return f"{value:,.{digits}f}".replace(",", "_").replace(".", decimal).replace("_", mark)


def lakhs(value: float, _: int) -> str:
    """Return `value` as it is written in India: 12,34,567."""
    whole = f"{value:.0f}"
    head, tail = whole[:-3], whole[-3:]
    pairs = [head[max(0, end - 2) : end] for end in range(len(head), 0, -2)][::-1]
    return ",".join([*pairs, tail])


def dated(form: str) -> Callable[[date, int], str]:
    """Return a function that writes a date in the format `form` of strftime."""
    return lambda value, _: value.strftime(form)


def composed(value: str | None, row: int) -> str:
    """Return a label, in every other row with accents as separate characters."""
    return unicodedata.normalize(("NFC", "NFD")[row % 2], value or "")


def ordinal(value: date, _: int) -> str:
    """Return a date like January 31st, 2021."""
    suffix = "th" if 11 <= value.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(value.day % 10, "th")
    return f"{value:%B} {value.day}{suffix}, {value:%Y}"


def dashed(missing: str) -> Callable[[object, int], str]:
    """Return a function that writes numbers as they are, and a missing value as `missing`."""
    return lambda value, _: missing if value is None else f"{value}"


SHAPES = {
    "unit after the number": Shape("area", lambda v, _: f"{v} m²"),
    "unit without a space": Shape("area", lambda v, _: f"{v}m2"),
    "unit of two words": Shape("area", lambda v, _: f"{v} sq ft"),
    "unit in some rows": Shape("area", lambda v, i: f"{v} kg" if i % 3 else f"{v}"),
    "per cent": Shape("area", lambda v, _: f"{v}%"),
    "per cent with a space": Shape("area", lambda v, _: f"{v} %"),
    "dollars": Shape("price_level", lambda v, _: f"${grouped(v, ',')}"),
    "euros after": Shape("price_level", lambda v, _: f"{grouped(v, '.', ',')} €"),
    "euros before": Shape("price_level", lambda v, _: f"€ {v}"),
    "currency code": Shape("price_level", lambda v, _: f"USD {grouped(v, ',')}"),
    "thousands comma": Shape("price_level", lambda v, _: grouped(v, ",")),
    "thousands space": Shape("price_level", lambda v, _: grouped(v, " ")),
    "thousands no-break space": Shape("price_level", lambda v, _: grouped(v, "\u202f", ",")),
    "thousands apostrophe": Shape("price_level", lambda v, _: grouped(v, "'")),
    "thousands point, decimal comma": Shape("price_level", lambda v, _: grouped(v, ".", ",")),
    "lakhs": Shape("population", lakhs),
    "decimal comma": Shape("area", lambda v, _: f"{v}".replace(".", ",")),
    "apostrophe before the number": Shape("area", lambda v, _: f"'{v}"),
    "accountants' negatives": Shape("balance", lambda v, _: f"({-v})" if v < 0 else f"{v}"),
    "minus sign of typographers": Shape("balance", lambda v, _: f"{v}".replace("-", "−")),
    "exponents": Shape("area", lambda v, _: f"{v:.6e}"),
    "scientific notation, decimal comma": Shape("balance", lambda v, _: f"{v:.6e}".replace(".", ",")),
    "plus signs": Shape("balance", lambda v, _: f"{v:+}"),
    "dash for missing": Shape("gappy", dashed("-")),
    "n/a for missing": Shape("gappy", dashed("n/a")),
    "N.A. for missing": Shape("gappy", dashed("N.A.")),
    "long dash for missing": Shape("gappy", dashed("—")),
    "spreadsheet error for missing": Shape("gappy", dashed("#DIV/0!")),
    "spaces around": Shape("area", lambda v, _: f"  {v} "),
    "day, month by name": Shape("built", dated("%d-%b-%Y")),
    "month by name first": Shape("built", dated("%B %d, %Y")),
    "ordinal days": Shape("built", ordinal),
    "weekday first": Shape("built", dated("%a, %d %b %Y")),
    "points, day first": Shape("built", dated("%d.%m.%Y")),
    "slashes, month first": Shape("built", dated("%m/%d/%Y")),
    "slashes, day first": Shape("built", dated("%d/%m/%Y")),
    "slashes, year first": Shape("built", dated("%Y/%m/%d")),
    "two-digit years": Shape("built", dated("%m/%d/%y")),
    "compact dates": Shape("built", dated("%Y%m%d")),
    "compact dates and times": Shape("seen", dated("%Y%m%d%H%M")),
    "dates with midnight": Shape("built", dated("%Y-%m-%dT00:00:00Z")),
    "AM and PM": Shape("seen", dated("%m/%d/%Y %I:%M %p")),
    "24 hours and seconds": Shape("seen", dated("%d.%m.%Y %H:%M:%S")),
    "time with AM and PM": Shape("clock", dated("%I:%M %p")),
    "time with seconds": Shape("clock", dated("%H:%M:%S")),
    "yes and no in four spellings": Shape("garden", lambda v, i: (("Yes", "Y") if v == "yes" else ("no", "N"))[i % 2]),
    "true and false": Shape("garden", lambda v, i: (("TRUE", "yes") if v == "yes" else ("False", "no"))[i % 2]),
    "dash for a missing category": Shape("district", lambda v, _: "-" if v is None else v),
    "accents composed in two ways": Shape("district", composed),
    "category in quotes": Shape("district", lambda v, _: "" if v is None else f" {v} "),
}


def clean_columns(n_rows: int, seed: int = 0) -> dict[str, Values]:
    """Return the columns of a table of houses by name, with numbers, dates, times and labels as Python's values."""
    rng = np.random.default_rng(seed)
    area = rng.uniform(20, 300, n_rows).round(1)
    level = rng.uniform(900, 2_000_000, n_rows).round(1)
    minutes = rng.integers(0, 24 * 60, n_rows)
    days = rng.integers(0, 1400, n_rows)
    balance = rng.normal(0, 50, n_rows).round(2)
    district = [None if i % 9 == 4 else str(v) for i, v in enumerate(rng.choice(["hill", "harbour", "été"], n_rows))]
    return {
        "area": area.tolist(),
        "price_level": level.tolist(),
        "population": rng.integers(1_000, 30_000_000, n_rows).tolist(),
        "balance": balance.tolist(),
        "gappy": [None if i % 7 == 3 else float(v) for i, v in enumerate(rng.normal(5, 2, n_rows).round(2))],
        "built": [DAY + timedelta(days=int(day)) for day in days],
        "seen": [
            datetime(2021, 1, 1) + timedelta(days=int(d), minutes=int(m))
            for d, m in zip(days[::-1], minutes, strict=True)
        ],
        "clock": [(datetime(2021, 1, 1) + timedelta(minutes=int(m))).time() for m in minutes],
        "garden": rng.choice(["yes", "no"], n_rows).tolist(),
        "district": district,
    }


def plain(value: object) -> str:
    """Return `value` in plain form: 1234.5, an ISO date, 14:30, or the label itself; empty if it is missing."""
    if value is None:
        return ""
    return value.strftime("%H:%M") if type(value).__name__ == "time" else str(value)


def targets(columns: dict[str, Values], column: str, seed: int = 1) -> list[str]:
    """Return targets that depend on the column called `column`, with a little noise."""
    signal = np.array([_effect(value) for value in columns[column]])
    spread = signal.std() or 1.0
    noise = np.random.default_rng(seed).normal(0, 0.2, len(signal))
    return [f"{value:.4f}" for value in signal / spread + 0.01 * np.array(columns["area"]) + noise]


def _effect(value: object) -> float:
    """Return the number that a value contributes to the target."""
    if value is None:
        return 0.0
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, date):
        return float(value.toordinal())
    if isinstance(value, str):
        return {"yes": 1.0, "hill": 2.0, "harbour": -1.0}.get(value, 0.0)
    return float(np.sin(2 * np.pi * (value.hour * 60 + value.minute) / 1440))


def write_csv(path: Path, columns: dict[str, list[str]], delimiter: str = ",", encoding: str = "utf-8") -> Path:
    """Write columns of text to the CSV file `path`, with every value in quotes, and return the path."""
    lines = [list(columns), *zip(*columns.values(), strict=True)]
    text = "".join(delimiter.join(f'"{value}"' for value in line) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode(encoding)) if path.suffix == ".gz" else text.encode(encoding))
    return path


def pair_of_files(folder: Path, name: str, n_rows: int = N_ROWS) -> tuple[Path, Path, str]:
    """Write the shape called `name` and its clean form to `folder`; return both paths, and the name of its column.

    Each file has this column, the area in plain form (unless it is this column), a column "other", and the target y.
    """
    shape, columns = SHAPES[name], clean_columns(n_rows)
    y = targets(columns, shape.column)
    clean = {shape.column: [plain(value) for value in columns[shape.column]]}
    messy = {shape.column: [_messy(shape, value, i) for i, value in enumerate(columns[shape.column])]}
    rest = {} if shape.column == "area" else {"area": [plain(value) for value in columns["area"]]}
    rest |= {"other": [f"{i % 17}" for i in range(n_rows)], "y": y}
    return write_csv(folder / "messy.csv", messy | rest), write_csv(folder / "clean.csv", clean | rest), shape.column


def _messy(shape: Shape, value: object, i: int) -> str:
    """Return `value` of row `i` as `shape` writes it; a missing value that the shape does not write is empty."""
    try:
        return shape.write(value, i)
    except (TypeError, ValueError, AttributeError):
        return ""


# The benchmark


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run with the options of the command line, `arguments`; return the stored result."""
    options = reporting.parser_of(__doc__).parse_args(arguments)
    settings = {"rows": 60 if options.quick else N_ROWS}
    return reporting.run_and_store("table_shapes", options, settings, run(options, **settings), tables)


def run(options: argparse.Namespace, rows: int) -> Iterator[Json]:
    """Yield the results so far: for each shape the RMSE of held-out rows, and that of its clean form."""
    results: Json = {"rows": []}
    known: dict[str, float] = {}  # RMSEs by a hash of the encoded rows: equal rows give bitwise equal members
    with tempfile.TemporaryDirectory() as folder:
        for name in list(SHAPES)[: 1 if options.quick else None]:
            messy, clean, _ = pair_of_files(Path(folder), name, rows)
            errors = [held_out_rmse(path, options.quick, known) for path in (messy, clean)]
            found = {"shape": name, "rmse": errors[0], "clean_rmse": errors[1]}
            reporting.note(f"{name}: {found['rmse'] / found['clean_rmse']:.4f}")
            results["rows"].append(found)
            yield results


def held_out_rmse(path: Path, quick: bool, known: dict[str, float]) -> float:
    """Fit the first three quarters of the rows of the file `path`; return the RMSE of the others.

    It is in `known`, by a hash of the encoded rows, if the same rows were fitted before.
    """
    from anchored import AnchoredRegressor
    from anchored.estimators.fingerprints import fingerprint
    from anchored.tables.files import open_table
    from anchored.tables.schema import Schema
    from anchored.tables.target import Target

    table = open_table(path).read(open_table(path).names)
    n_training = 3 * len(table) // 4
    y = Target.infer(table, "y").read(table)[0]
    inputs = table.without(["y"])
    X = Schema.infer(inputs).encode(inputs)[0]
    same = fingerprint(X, y)
    if same not in known:
        settings = uci_sets.QUICK if quick else {}
        model = AnchoredRegressor(**settings, random_state=0).fit(X[:n_training], y[:n_training])
        known[same] = float(np.sqrt(np.mean((model.predict(X[n_training:]) - y[n_training:]) ** 2)))
    return known[same]


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the shapes in `stored`."""
    cells = [
        (row["shape"], f"{row['rmse']:.4f}", f"{row['clean_rmse']:.4f}", f"{row['rmse'] / row['clean_rmse']:.3f}")
        for row in stored["rows"]
    ]
    header = ("how a column is written", "RMSE", "RMSE of its clean form", "ratio")
    return {"table_shapes": reporting.table(stored, "python benchmarks/table_shapes.py", header, cells)}


if __name__ == "__main__":
    main()
