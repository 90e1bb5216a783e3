"""Options of the program itself, before any command: --version."""

from typing import Annotated

from typer import Exit, Option, echo

from anchored import __version__


def print_version(is_requested: bool) -> None:
    """If `is_requested`, print the version and end the program."""
    if is_requested:
        echo(f"anchored {__version__}")
        raise Exit


def app_options(  # its docstring is the program's help text
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Predictions with calibrated uncertainty for tables, by anchored ensembles of neural networks."""
