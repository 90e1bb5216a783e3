"""Commands with odd CSV files: they succeed, or end with exit code 2 and one line, never with a traceback."""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np

from anchored.tables import saved_model
from faults import models
from faults.commands import RefusedError, anchored
from faults.trial import HELD, Case, Check, Trial

Table = list[list[str]]  # a row with the names of columns, then the rows of cells

WORDS = (
    "[bold]b[/bold]",
    "[/]",
    "[red",
    "\\",
    "a\\",
    "<script>alert(1)</script>",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "bell\x07",
    "back\x08\x08",
    "two\nlines",
    "return\rover",
    "\x85",
    "\u2028",
    "\u202eright to left",
    "\ufeffBOM",
    "zero\u200bwidth",
    "\ud7ff\U0001f600",
    "Größe",
    "数",
    "=1+1",
    "-h",
    "--help",
    "%s{0}",
    "'",
    '"quoted"',
    "tab\there",
    "semi;colon",
    "comma, too",
    "x" * 5000,
    "",
    " ",
    "\x00",
    "mean",
    "nan",
    "number of unknown values",
)
NUMBERS = (
    *("0", "-0", "1e308", "1e309", "-1e400", "1e-320", "1e100", "9" * 400, "0." + "0" * 400 + "1", "inf", "-Infinity"),
    *("nan", "NaN", "1,5", "1.234,5", "$3", "4 %", "0x1F", "1_000", "٣", "1e", "--1", "+", "١٢", "1 000", "½", "True"),
    *("9223372036854775808", "-9223372036854775809", "1e16", "12345678901234567890.123456789"),
)
DATES = ("2024-02-30", "0000-00-00", "9999-12-31", "1.2.3", "2024-01-01T25:00", "12/31/1999", "-2024-01-01", "now")


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield commands, each with an odd table drawn with `seed`, endlessly; `folder` is not used."""
    number = 0
    while True:
        random = Random(f"{seed} {number}")
        command = random.choices(("fit", "predict", "evaluate", "report"), (30, 45, 20, 5))[0]
        description, content, target = odd_table(random)
        yield Case(f"{command}, number {number}: {description}", (command, content, target))
        number += 1


def odd_table(random: Random) -> tuple[str, bytes, str]:
    """Draw a table with `random`; return what is odd about it, the content of its file, and the name of its target."""
    header, *lines = models.HARBOURS.splitlines()
    n_rows = random.choice((0, 1, 25, 25, 30, 30, 40, 40))
    table = [header.split(",")] + [random.choice(lines).split(",") for _ in range(n_rows)]
    chosen = random.sample(TABLE_ODDITIES, random.choice((0, 1, 1, 1, 2, 3)))
    for odd in chosen:
        odd(random, table)
    target = random.choice(table[0]) if table and table[0] and random.random() < 0.2 else "ships"
    content = written(random, table)
    changed = random.sample(BYTE_ODDITIES, random.choice((0, 0, 0, 0, 0, 1, 1, 2)))
    for change in changed:
        content = change(random, content)
    return ", ".join(odd.__name__ for odd in (*chosen, *changed)) or "plain", content, target


def written(random: Random, table: Table) -> bytes:
    """Return `table` as CSV, in a dialect and an encoding drawn with `random`."""
    text = io.StringIO(newline="")
    writer = csv.writer(
        text,
        delimiter=random.choices(",;\t|:", (8, 3, 3, 3, 1))[0],
        quotechar=random.choices("\"'", (15, 1))[0],
        quoting=random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)),
        lineterminator=random.choices(("\n", "\r\n", "\r"), (10, 5, 1))[0],
    )
    writer.writerows(table)
    encoding = random.choices(("utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32", "cp1252"), (40, 8, 2, 1, 1, 1))[0]
    return text.getvalue().encode(encoding, errors="replace")


# Changes to a table: each function changes `table` in place, and draws with `random`


def odd_names(random: Random, table: Table) -> None:
    """Replace names of columns with markup, control characters or command-line options."""
    for _ in range(random.choice((1, 2))):
        table[0][random.randrange(len(table[0]))] = random.choice(WORDS)


def repeated_names(random: Random, table: Table) -> None:
    """Give two columns the same name."""
    table[0][random.randrange(len(table[0]))] = random.choice(table[0])


def odd_words(random: Random, table: Table) -> None:
    """Replace cells with markup, control characters or command-line options."""
    _fill(random, table, random.randrange(len(table[0])), WORDS)


def odd_numbers(random: Random, table: Table) -> None:
    """Replace cells with numbers that are too large, too small, or in another format."""
    _fill(random, table, random.choice((0, -1)), NUMBERS)


def odd_dates(random: Random, table: Table) -> None:
    """Replace cells with invalid or ambiguous dates."""
    _fill(random, table, 2 % len(table[0]), DATES)


def ragged_rows(random: Random, table: Table) -> None:
    """Make rows too short or too long."""
    for row in random.sample(table[1:], min(3, len(table) - 1)):
        row[:] = random.choice((row[:-1], [*row, "more"], [], row * 2))


def empty_column(random: Random, table: Table) -> None:
    """Empty all cells of a column."""
    position = random.randrange(len(table[0]))
    for row in table[1:]:
        row[position : position + 1] = [""]


def new_columns(random: Random, table: Table) -> None:
    """Insert a column that the model does not know."""
    kind = random.choice((WORDS, NUMBERS, DATES, ("",), ("same",)))
    for i, row in enumerate(table):
        row.insert(0, random.choice(kind) if i else random.choice((*WORDS, "new")))


def missing_column(random: Random, table: Table) -> None:
    """Remove a column."""
    position = random.randrange(len(table[0]))
    for row in table:
        del row[position : position + 1]


def long_cell(random: Random, table: Table) -> None:
    """Write up to two million characters into a cell."""
    row = random.choice([row for row in table if row])
    row[0] = random.choice("x1,\n") * random.choice((10_000, 200_000, 2_000_000))


def blank_lines(random: Random, table: Table) -> None:
    """Insert an empty line."""
    table.insert(random.randrange(1, len(table) + 1), [])


def every_row_new(random: Random, table: Table) -> None:
    """Make every row different, with categories and numbers that never repeat."""
    for i, row in enumerate(table[1:]):
        row[:] = [f"{i / 7}", f"word {i}", f"20{i % 100:02}-01-02", f"{i}"]


def _fill(random: Random, table: Table, column: int, values: tuple[str, ...]) -> None:
    """Replace one, some or all cells of a column by `values`."""
    share = random.choice((0.05, 0.3, 1))
    value = random.choice(values)
    for row in table[1:]:
        if row and random.random() < share:
            row[column if column < len(row) else -1] = value if random.random() < 0.5 else random.choice(values)


TABLE_ODDITIES: tuple[Callable[[Random, Table], None], ...] = (
    *(odd_names, repeated_names, odd_words, odd_numbers, odd_dates, ragged_rows, empty_column),
    *(new_columns, missing_column, long_cell, blank_lines, every_row_new),
)


# Changes to the bytes of a file: each function returns the changed `content`, and draws with `random`


def no_bytes(random: Random, content: bytes) -> bytes:
    """Return an almost empty file."""
    return random.choice((b"", b"\n", b"\xef\xbb\xbf", b" \n \n", b"\0"))


def blank_start(random: Random, content: bytes) -> bytes:
    """Insert empty lines before the names of columns."""
    return random.choice((b"\n", b"\n\n", b" \r\n")) + content


def noise(random: Random, content: bytes) -> bytes:
    """Return random bytes."""
    return random.randbytes(random.randrange(1, 500))


def nul_bytes(random: Random, content: bytes) -> bytes:
    """Insert zero bytes."""
    position = random.randrange(len(content) + 1)
    return content[:position] + b"\0" * random.choice((1, 100)) + content[position:]


def wrong_bytes(random: Random, content: bytes) -> bytes:
    """Insert random bytes, which are mostly not UTF-8."""
    position = random.randrange(len(content) + 1)
    return content[:position] + random.randbytes(random.choice((1, 3))) + content[position:]


def cut_short(random: Random, content: bytes) -> bytes:
    """Remove the end."""
    return content[: random.randrange(len(content) + 1)]


def open_quote(random: Random, content: bytes) -> bytes:
    """Insert a quotation mark."""
    position = random.randrange(len(content) + 1)
    return content[:position] + b'"' + content[position:]


def file_signatures(random: Random, content: bytes) -> bytes:
    """Insert a byte-order mark, or the first bytes of another kind of file."""
    return random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"PAR1", b"PK\x03\x04", b"\x1f\x8b")) + content


BYTE_ODDITIES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(no_bytes, blank_start, noise, nul_bytes, wrong_bytes, wrong_bytes, cut_short, open_quote, file_signatures),
)


# Checking


def start(folder: Path, scratch: Path) -> Check:
    """Return a check that runs a command with an odd file in `scratch`; `folder` contains the model."""
    model = folder / "table"
    data, out = scratch / "data.csv", scratch / "out"
    commands = {
        "fit": lambda target: ("fit", data, f"--target={target}", "--out", out, "--members", 2, "--max-iter", 1),
        "predict": lambda _: ("predict", model, data, "--out", out.with_suffix(".csv")),
        "evaluate": lambda _: ("evaluate", model, data),
        "report": lambda _: ("report", model, data, "--out", out.with_suffix(".html")),
    }

    data.write_bytes((folder / "harbours.csv").read_bytes())
    anchored(*commands["predict"](""))  # the unchanged table is predicted

    def check(case: tuple[str, bytes, str]) -> str:
        command, content, target = case
        data.write_bytes(content)
        try:
            anchored(*commands[command](target))
        except RefusedError:
            return HELD
        if command == "fit":
            saved_model.load(out)
        return _check_predictions(out.with_suffix(".csv")) if command == "predict" else HELD

    return check


def _check_predictions(path: Path) -> str:
    """Return HELD if every prediction in the file is a finite number."""
    predictions = np.genfromtxt(path, delimiter=",", skip_header=1)
    return HELD if predictions.size and np.isfinite(predictions).all() else "predictions that are not finite"


TRIAL = Trial(
    "csv",
    "with any CSV file, a command succeeds, or ends with one line that says what is wrong",
    size=2_000,
    quick=40,
    cases=cases,
    start=start,
    prepare=models.prepare,
    seconds=60,
)
