"""Odd CSV files, through the commands: they end well, or with exit code 2 and one line; never with a traceback."""

import csv
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import numpy as np

from anchored.tables import saved_model
from faults import models
from faults.commands import RefusedError, anchored
from faults.trial import HELD, Case, Judge, Trial

Table = list[list[str]]  # names, then rows

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
    """A command and an odd table for it."""
    number = 0
    while True:
        random = Random(f"{seed} {number}")
        command = random.choices(("fit", "predict", "evaluate", "report"), (30, 45, 20, 5))[0]
        told, content, target = odd_table(random)
        yield Case(f"{command}, number {number}: {told}", (command, content, target))
        number += 1


def odd_table(random: Random) -> tuple[str, bytes, str]:
    """What is odd about it, the file, and the name of its target."""
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
    """In any dialect of CSV."""
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


# What may be odd about a table


def odd_names(random: Random, table: Table) -> None:
    """Markup, control characters, options and the like in the place of names."""
    for _ in range(random.choice((1, 2))):
        table[0][random.randrange(len(table[0]))] = random.choice(WORDS)


def repeated_names(random: Random, table: Table) -> None:
    """One name twice."""
    table[0][random.randrange(len(table[0]))] = random.choice(table[0])


def odd_words(random: Random, table: Table) -> None:
    """Such words in cells."""
    _fill(random, table, random.randrange(len(table[0])), WORDS)


def odd_numbers(random: Random, table: Table) -> None:
    """Numbers that are too large, too small, or written in another way."""
    _fill(random, table, random.choice((0, -1)), NUMBERS)


def odd_dates(random: Random, table: Table) -> None:
    """Days that there are not."""
    _fill(random, table, 2 % len(table[0]), DATES)


def ragged_rows(random: Random, table: Table) -> None:
    """Rows that are too short or too long."""
    for row in random.sample(table[1:], min(3, len(table) - 1)):
        row[:] = random.choice((row[:-1], [*row, "more"], [], row * 2))


def empty_column(random: Random, table: Table) -> None:
    """A column without cells."""
    place = random.randrange(len(table[0]))
    for row in table[1:]:
        row[place : place + 1] = [""]


def new_columns(random: Random, table: Table) -> None:
    """A column that nobody expects."""
    kind = random.choice((WORDS, NUMBERS, DATES, ("",), ("same",)))
    for i, row in enumerate(table):
        row.insert(0, random.choice(kind) if i else random.choice((*WORDS, "new")))


def column_gone(random: Random, table: Table) -> None:
    """A column less."""
    place = random.randrange(len(table[0]))
    for row in table:
        del row[place : place + 1]


def long_cell(random: Random, table: Table) -> None:
    """A cell of up to two million characters."""
    row = random.choice([row for row in table if row])
    row[0] = random.choice("x1,\n") * random.choice((10_000, 200_000, 2_000_000))


def blank_lines(random: Random, table: Table) -> None:
    """A line with nothing in it."""
    table.insert(random.randrange(1, len(table) + 1), [])


def every_row_new(random: Random, table: Table) -> None:
    """Categories and numbers that never repeat."""
    for i, row in enumerate(table[1:]):
        row[:] = [f"{i / 7}", f"word {i}", f"20{i % 100:02}-01-02", f"{i}"]


def _fill(random: Random, table: Table, column: int, values: tuple[str, ...]) -> None:
    """One, some or all cells of a column."""
    share = random.choice((0.05, 0.3, 1))
    value = random.choice(values)
    for row in table[1:]:
        if row and random.random() < share:
            row[column if column < len(row) else -1] = value if random.random() < 0.5 else random.choice(values)


TABLE_ODDITIES: tuple[Callable[[Random, Table], None], ...] = (
    *(odd_names, repeated_names, odd_words, odd_numbers, odd_dates, ragged_rows, empty_column),
    *(new_columns, column_gone, long_cell, blank_lines, every_row_new),
)


def no_bytes(random: Random, content: bytes) -> bytes:
    """Next to nothing."""
    return random.choice((b"", b"\n", b"\xef\xbb\xbf", b" \n \n", b"\0"))


def blank_start(random: Random, content: bytes) -> bytes:
    """Nothing before the names."""
    return random.choice((b"\n", b"\n\n", b" \r\n")) + content


def noise(random: Random, content: bytes) -> bytes:
    """Bytes at random."""
    return random.randbytes(random.randrange(1, 500))


def nul_bytes(random: Random, content: bytes) -> bytes:
    """Zeros somewhere."""
    place = random.randrange(len(content) + 1)
    return content[:place] + b"\0" * random.choice((1, 100)) + content[place:]


def wrong_bytes(random: Random, content: bytes) -> bytes:
    """Bytes that are not UTF-8 somewhere."""
    place = random.randrange(len(content) + 1)
    return content[:place] + random.randbytes(random.choice((1, 3))) + content[place:]


def cut_short(random: Random, content: bytes) -> bytes:
    """An early end."""
    return content[: random.randrange(len(content) + 1)]


def open_quote(random: Random, content: bytes) -> bytes:
    """A quote somewhere."""
    place = random.randrange(len(content) + 1)
    return content[:place] + b'"' + content[place:]


def marks_of_order(random: Random, content: bytes) -> bytes:
    """The first bytes of other kinds of files."""
    return random.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"PAR1", b"PK\x03\x04", b"\x1f\x8b")) + content


BYTE_ODDITIES: tuple[Callable[[Random, bytes], bytes], ...] = (
    *(no_bytes, blank_start, noise, nul_bytes, wrong_bytes, wrong_bytes, cut_short, open_quote, marks_of_order),
)


# Judging


def start(folder: Path, own: Path) -> Judge:
    """Run commands on a file."""
    model = folder / "table"
    data, out = own / "data.csv", own / "out"
    commands = {
        "fit": lambda target: ("fit", data, f"--target={target}", "--out", out, "--members", 2, "--max-iter", 1),
        "predict": lambda _: ("predict", model, data, "--out", out.with_suffix(".csv")),
        "evaluate": lambda _: ("evaluate", model, data),
        "report": lambda _: ("report", model, data, "--out", out.with_suffix(".html")),
    }

    data.write_bytes((folder / "harbours.csv").read_bytes())
    anchored(*commands["predict"](""))  # a table that is not odd is predicted

    def judge(case: tuple[str, bytes, str]) -> str:
        command, content, target = case
        data.write_bytes(content)
        try:
            anchored(*commands[command](target))
        except RefusedError:
            return HELD
        if command == "fit":
            saved_model.load(out)
        return _unlike_numbers(out.with_suffix(".csv")) if command == "predict" else HELD

    return judge


def _unlike_numbers(path: Path) -> str:
    """HELD where every prediction is a finite number."""
    found = np.genfromtxt(path, delimiter=",", skip_header=1)
    return HELD if found.size and np.isfinite(found).all() else "predictions that are not finite"


TRIAL = Trial(
    "csv",
    "whatever a CSV file holds, a command ends well, or with one line that says what is wrong",
    size=2_000,
    quick=40,
    cases=cases,
    start=start,
    prepare=models.prepare,
    seconds=60,
)
