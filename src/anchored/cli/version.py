"""The option --version."""

from typing import Annotated

from typer import Exit, Option, echo

from anchored import __version__


def print_version(is_asked: bool) -> None:
    """Print the version and end the command, if `is_asked`."""
    if is_asked:
        echo(f"anchored {__version__}")
        raise Exit


def main(
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Predictions with calibrated uncertainty for tables, by anchored ensembles of neural networks."""
