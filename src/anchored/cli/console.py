"""What every command shares: messages for people or one JSON object for machines, and exit codes."""

import json
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated, Any

import typer

from anchored.storage.text import printable
from anchored.tables.errors import TableError

BAD_INPUT = 2  # what a user can mend; 1 is left to bugs

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object; messages go to standard error.")]


class Console:
    """People read standard output; with `as_json`, machines do.

    Text from files is never markup, and its control characters are written out: callers need not think of it.
    """

    def __init__(self, as_json: bool):
        self.as_json = as_json

    @property
    def verbose(self) -> int:
        """Whether bars may be drawn."""
        return int(not self.as_json and sys.stdout.isatty())

    def say(self, line: str) -> None:
        """One line for people."""
        typer.echo(printable(line), err=self.as_json)

    def note(self, message: str) -> None:
        """Something to know, which is no error."""
        typer.echo(f"note: {printable(message)}", err=True)

    def error(self, message: str) -> None:
        """Why the command ends here; machines are told, too."""
        typer.echo(f"error: {printable(message)}", err=True)
        self.result({"error": message})

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Aligned columns; numbers need no rules between them."""
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
            table.add_row(*(Text(printable(cell)) for cell in row))
        Terminal().print(table)

    def result(self, content: dict[str, Any]) -> None:
        """What a machine is told; people have read it already. In ASCII, which no terminal changes or obeys."""
        if self.as_json:
            typer.echo(json.dumps(content))


@contextmanager
def console(as_json: bool) -> Iterator[Console]:
    """Run a command: what a user can mend ends it with one line and exit code 2, a bug with its traceback and 1."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # of tables, R² on a terminal that knows ASCII alone
    terminal = Console(as_json)
    try:
        with ended_by_sigterm(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            yield terminal
        for message in dict.fromkeys(str(warning.message) for warning in caught):
            terminal.note(in_options(in_one_line(message)))
    except (TableError, OSError, ImportError) as error:
        if isinstance(error, ImportError) and "pip install" not in str(error):
            raise
        terminal.error(in_one_line(str(error)))
        raise typer.Exit(BAD_INPUT) from None


def in_one_line(message: str) -> str:
    """A message that may be broken into lines, as those of other libraries are."""
    return re.sub(r"\s*\n\s*", " ", message.strip())


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM end the command as an error does, so that what is half-written is removed."""
    if threading.current_thread() is not threading.main_thread():  # which alone is told of signals
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def in_options(message: str) -> str:
    """A message of the library, for someone who has the options of a command."""
    for setting in ("max_iter, or learning_rate_init", "max_iter or learning_rate_init", "max_iter"):
        message = re.sub(f"(?i)raise {setting}", lambda found: f"{found[0][:5]} --max-iter of anchored fit", message)
    return message


@contextmanager
def counting(on: bool, what: str) -> Iterator[Any]:
    """A function that is told of rows as they are done, and shows how many."""
    if not on:
        yield lambda n_rows: None
        return
    from rich.console import Console as Terminal
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(what + " {task.completed:,.0f} rows"), TimeElapsedColumn())
    with Progress(*columns, console=Terminal(stderr=True), transient=True) as progress:
        task = progress.add_task("")
        yield lambda n_rows: progress.advance(task, n_rows)
