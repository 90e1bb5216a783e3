"""The `anchored` command, run inside this process, and a check of how it ends."""

import re
from typing import Any

from typer.testing import CliRunner

from anchored.cli import app
from faults.trial import HELD, describe_error

UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # characters that control a terminal


class RefusedError(Exception):
    """The command ended with exit code 2 and this message of one line."""


class BadEndError(Exception):
    """The command ended in a way that is not allowed, such as with a traceback; the message says how."""


def anchored(*arguments: Any) -> str:
    """Run a command with these `arguments`, and return what it prints.

    Raises a RefusedError if it ends with exit code 2 and one line, and a BadEndError if it fails in another way.
    """
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    failure = failure_of(done)
    if failure:
        raise BadEndError(failure)
    if done.exit_code == 2:
        raise RefusedError(done.stderr.removeprefix("error: ").strip())
    return done.stdout


def failure_of(done: Any) -> str:
    """Return HELD if the command `done` succeeded, or ended with exit code 2 and one line; otherwise the failure."""
    if done.exit_code not in (0, 2):
        error = done.exception
        return f"exit code {done.exit_code}" if isinstance(error, SystemExit | None) else describe_error(error)
    if "Traceback" in done.output:
        return "a traceback"
    if done.exit_code == 2 and not (done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1):
        return f"not one line: {done.stderr[:200]!r}"
    unprintable = UNPRINTABLE.search(done.output)
    return f"prints the control character {unprintable[0]!r}" if unprintable else HELD
