"""The `anchored` command: models of tables, and the paper's experiments.

Large libraries are imported inside the commands, so that --help is fast.
"""

from typing import Annotated

from typer import Exit, Option, Typer, echo

from anchored import __version__
from anchored.cli import evaluation, reproduce, tables

app = Typer(
    name="anchored",
    help="Predictions with calibrated uncertainty for tables, by anchored ensembles of neural networks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def print_version(is_asked: bool) -> None:
    """Print the version and end the command, if `is_asked`."""
    if is_asked:
        echo(f"anchored {__version__}")
        raise Exit


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", help="Print the version and exit.", callback=print_version, is_eager=True)
    ] = False,
) -> None:
    """Predictions with calibrated uncertainty for tables, by anchored ensembles of neural networks."""


app.command()(tables.fit)
app.command()(tables.predict)
app.command()(evaluation.evaluate)
app.command()(evaluation.certify)
app.command()(evaluation.report)
app.command()(reproduce.reproduce)
app.command()(reproduce.bench)
