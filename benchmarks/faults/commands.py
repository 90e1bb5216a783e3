"""The `anchored` command, run inside a process, and what may come of it."""

import re
from typing import Any

from typer.testing import CliRunner

from anchored.cli import app
from faults.trial import HELD, in_words

UNPRINTABLE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")  # what a terminal might obey


class RefusedError(Exception):
    """The command ended with exit code 2 and this line."""


class BadEndError(Exception):
    """The command ended in another way than it may; the message says how."""


def anchored(*arguments: Any) -> str:
    """What a command prints. A RefusedError where it refuses in one line, else a BadEndError."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    failure = failure_of(done)
    if failure:
        raise BadEndError(failure)
    if done.exit_code == 2:
        raise RefusedError(done.stderr.removeprefix("error: ").strip())
    return done.stdout


def failure_of(done: Any) -> str:
    """HELD where it ended well, or with exit code 2 and one line."""
    if done.exit_code not in (0, 2):
        error = done.exception
        return f"exit code {done.exit_code}" if isinstance(error, SystemExit | None) else in_words(error)
    if "Traceback" in done.output:
        return "a traceback"
    if done.exit_code == 2 and not (done.stderr.startswith("error: ") and len(done.stderr.splitlines()) == 1):
        return f"not one line: {done.stderr[:200]!r}"
    found = UNPRINTABLE.search(done.output)
    return f"prints the control character {found[0]!r}" if found else HELD
