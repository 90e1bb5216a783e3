"""The `anchored` command: tables in, calibrated predictions out; and the paper, rebuilt.

Nothing heavy is imported before a command needs it, so that help answers at once.
"""

import typer

app = typer.Typer(
    name="anchored",
    help="Neural networks that know what they don't know: anchored ensembles on the command line.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
