"""Output as text or as JSON, messages that name options, and exit codes, for all commands."""

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

from anchored.errors import ArgumentError, ClusterError, MissingPackageError, TableError
from anchored.storage.text import printable

BAD_INPUT = 2  # exit code for input that the user can correct; 1 is for bugs
OPTIONS = {  # for each argument that an error or a warning may name, the option that sets it
    "target": "--target",
    "task": "--task",
    "ignore": "--ignore",
    "types": "--type",
    "decimal": "--decimal",
    "thousands": "--thousands",
    "na_values": "--na",
    "date_format": "--date-format",
    "encoding": "--encoding",
    "hold_out": "--hold-out",
    "guarantee": "--guarantee",
    "max_iter": "--max-iter",
    "checkpoint": "--checkpoint",
    "out": "--out",
    "keep": "--keep",
    "strict": "--strict",
    "max_memory_gb": "--max-memory-gb",
    "only": "--only",
    "cluster": "--cluster",
    "port": "--port",
    "address": "--address",
    "agent": "--agent",
}

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to standard output, and messages to standard error.")
]


class Output:
    """Output of a command.

    `info` and `table` print to standard output. If `as_json`, `info` prints to standard error, `table` prints nothing,
    and `result` prints one JSON object to standard output. `warning`, `note` and `error` always print to
    standard error. Text is printed without interpreting markup, and its control characters are escaped.
    """

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.is_quiet = False  # True sends `info` to standard error, where standard output holds data

    @property
    def verbose(self) -> int:
        """1 if progress bars may be drawn, else 0."""
        return int(not self.as_json and sys.stdout.isatty())

    def info(self, line: str) -> None:
        """Print one `line` of text."""
        typer.echo(printable(line), err=self.as_json or self.is_quiet)

    def warning(self, message: str) -> None:
        """Print a `message` to standard error, marked as a warning."""
        typer.echo(f"warning: {printable(message)}", err=True)

    def note(self, message: str) -> None:
        """Print a `message` to standard error, marked as a note."""
        typer.echo(f"note: {printable(message)}", err=True)

    def error(self, message: str) -> None:
        """Print the `message` of the error that ends the command to standard error; if `as_json`, also as JSON."""
        typer.echo(f"error: {printable(message)}", err=True)
        self.result({"error": message})

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print `rows` below a `header` with aligned columns; if `as_json`, print nothing."""
        if self.as_json:
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(header))
        for title in header:
            table.add_column(Text(printable(title)))
        for row in rows:
            table.add_row(*(Text(printable(value)) for value in row))
        Console().print(table)

    def result(self, content: Mapping[str, object]) -> None:
        """If `as_json`, print `content` as one line of JSON, in which control characters are escaped."""
        if self.as_json:
            typer.echo(json.dumps(content))


@contextmanager
def command_output(as_json: bool) -> Iterator[Output]:
    """Context manager that yields an `Output`, and then prints the warnings of the block, or the error that ended it.

    `as_json` is the value of --json. An error that the user can correct is printed as one line, and ends the command
    with exit code 2; other errors are raised.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # for R² on an ASCII terminal
    output = Output(as_json)
    try:
        with exit_on_sigterm(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield output
        for message in dict.fromkeys(_warning_text(warning.message) for warning in caught):
            output.note(on_one_line(message))
    except (ArgumentError, TableError, OSError, MissingPackageError, ClusterError) as error:
        if isinstance(error, ArgumentError) and error.argument not in OPTIONS:
            raise  # no option sets this argument: the command itself passed a wrong value, which is a bug
        output.error(on_one_line(_error_text(error)))
        raise typer.Exit(BAD_INPUT) from None


def _error_text(error: Exception) -> str:
    """Return the message of `error`, in which options take the place of arguments."""
    if isinstance(error, ArgumentError):
        return error.message(OPTIONS[error.argument])
    if isinstance(error, TableError):
        return error.message(f"{OPTIONS[argument]} {shlex.quote(value)}" for argument, value in error.settings)
    return str(error)


def _warning_text(warning: Warning | str) -> str:
    """Return the message of `warning`, in which options of `anchored fit` take the place of arguments."""
    from anchored.methods.short_training import ShortTrainingWarning

    if isinstance(warning, ShortTrainingWarning):
        options = [OPTIONS[argument] for argument in warning.arguments if argument in OPTIONS]
        return f"{warning.reason}. Raise {' or '.join(options)} of anchored fit."
    return str(warning)


def on_one_line(message: str) -> str:
    """Return `message` without line breaks, which messages of other libraries may have."""
    return re.sub(r"\s*\n\s*", " ", message.strip())


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """Context manager that turns SIGTERM into a SystemExit, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread receives signals
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous_handler = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextmanager
def row_counter(is_shown: bool, verb: str) -> Iterator[Callable[[int], None]]:
    """Context manager that counts rows while the block runs.

    Yields a function to call with the number of rows of each batch. If `is_shown`, a line on standard error shows
    `verb`, such as "predicted", and the number of rows so far.
    """
    if not is_shown:
        yield lambda n_rows: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(verb + " {task.completed:,.0f} rows"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda n_rows: progress.advance(task, n_rows)
