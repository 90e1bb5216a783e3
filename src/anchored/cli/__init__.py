"""The `anchored` command: tables in, calibrated predictions out; and the paper, rebuilt.

Nothing heavy is imported before a command needs it, so that help answers at once.
"""

from typer import Typer

from anchored.cli import reproduce, tables

app = Typer(
    name="anchored",
    help="Neural networks that know what they don't know: anchored ensembles on the command line.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.command()(tables.fit)
app.command()(tables.predict)
app.command()(tables.evaluate)
app.command()(tables.certify)
app.command()(tables.report)
app.command()(reproduce.reproduce)
app.command()(reproduce.bench)
