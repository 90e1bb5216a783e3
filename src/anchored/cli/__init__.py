"""The `anchored` command: models of tables, and the paper's experiments.

Large libraries are imported inside the commands, so that --help is fast.
"""

from typer import Typer

from anchored.cli import evaluation, playground, reproduce, tables, version

app = Typer(
    name="anchored",
    help="Predictions with calibrated uncertainty for tables, by anchored ensembles of neural networks.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
app.callback()(version.app_options)
app.command()(tables.fit)
app.command()(tables.predict)
app.command()(evaluation.evaluate)
app.command()(evaluation.certify)
app.command()(evaluation.report)
app.command()(reproduce.reproduce)
app.command()(reproduce.bench)
app.command()(playground.playground)
