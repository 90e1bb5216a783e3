"""What every command shares: messages for people or one JSON object for machines, how options are spelt, exit codes."""

import json
import re
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType
from typing import Annotated

import typer

from anchored.errors import ArgumentError, TableError
from anchored.storage.text import printable

BAD_INPUT = 2  # exit code for input that the user can correct; 1 is left to bugs
OPTIONS = {  # which option sets an argument of the library
    "target": "--target",
    "task": "--task",
    "ignore": "--ignore",
    "categories": "--category",
    "hold_out": "--hold-out",
    "max_iter": "--max-iter",
    "out": "--out",
    "keep": "--keep",
    "strict": "--strict",
    "max_memory_gb": "--max-memory-gb",
}

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to standard output; messages go to standard error.")
]


class Console:
    """Where a command writes: standard output is for people, or with `as_json` for machines.

    Text from files is never taken for markup, and its control characters are written out.
    """

    def __init__(self, as_json: bool):
        self.as_json = as_json

    @property
    def verbose(self) -> int:
        """1 if progress bars may be drawn, else 0."""
        return int(not self.as_json and sys.stdout.isatty())

    def say(self, line: str) -> None:
        """Print one line for people."""
        typer.echo(printable(line), err=self.as_json)

    def note(self, message: str) -> None:
        """Print something to know that is not an error."""
        typer.echo(f"note: {printable(message)}", err=True)

    def error(self, message: str) -> None:
        """Print why the command ends, and as JSON if that is wanted."""
        typer.echo(f"error: {printable(message)}", err=True)
        self.result({"error": message})

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table with aligned columns; nothing with `as_json`."""
        if self.as_json:
            return
        from rich import box
        from rich.console import Console as Terminal
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(header))
        for title in header:
            table.add_column(Text(printable(title)))
        for row in rows:
            table.add_row(*(Text(printable(value)) for value in row))
        Terminal().print(table)

    def result(self, content: Mapping[str, object]) -> None:
        """Print the result, in JSON's types, if that is wanted; in ASCII, which no terminal interprets."""
        if self.as_json:
            typer.echo(json.dumps(content))


@contextmanager
def console(as_json: bool) -> Iterator[Console]:
    """Run a command. Input that the user can correct ends it with one line and exit code 2; a bug raises."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # R² in a table, on a terminal that knows ASCII alone
    terminal = Console(as_json)
    try:
        with ended_by_sigterm(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield terminal
        for message in dict.fromkeys(_warning(warning.message) for warning in caught):
            terminal.note(in_one_line(message))
    except (ArgumentError, TableError, OSError, ImportError) as error:
        if isinstance(error, ArgumentError) and error.argument not in OPTIONS:
            raise
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise
        terminal.error(in_one_line(_message(error)))
        raise typer.Exit(BAD_INPUT) from None


def _message(error: Exception) -> str:
    """An error's message, with options in the place of arguments."""
    if isinstance(error, ArgumentError):
        return error.message(OPTIONS[error.argument])
    if isinstance(error, TableError):
        return error.message(f"{OPTIONS[argument]} {shlex.quote(value)}" for argument, value in error.settings)
    return str(error)


def _warning(warning: Warning | str) -> str:
    """A warning's message, with the options of `anchored fit` in the place of arguments."""
    from anchored.methods.short_training import ShortTrainingWarning

    if isinstance(warning, ShortTrainingWarning):
        options = [OPTIONS[argument] for argument in warning.arguments if argument in OPTIONS]
        return f"{warning.reason}. Raise {' or '.join(options)} of anchored fit."
    return str(warning)


def in_one_line(message: str) -> str:
    """`message` without line breaks, which those of other libraries may have."""
    return re.sub(r"\s*\n\s*", " ", message.strip())


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the block as an error does, so that what is half-written is removed."""
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def counting(on: bool, verb: str) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of rows done since the last call; if `on`, their sum is shown after `verb`."""
    if not on:
        yield lambda n_rows: None
        return
    from rich.console import Console as Terminal
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(verb + " {task.completed:,.0f} rows"), TimeElapsedColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda n_rows: progress.advance(task, n_rows)
