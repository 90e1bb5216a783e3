"""The command line, as `python -m anchored`."""

from anchored.cli import app

app(prog_name="anchored")
