"""The command line as tests call it, and tables to call it with."""

import os
import re

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes
from typer.testing import CliRunner

from anchored.cli import app

# Names of columns that a terminal, a page or a picture could take for instructions
MARKUP = r"[/red] a\[/b] $x_{$ <b> :smile:"
CONTROLS = "\x1b[31m\x07\x9b2J\u202e"
CONTROLS_SHOWN = r"\x1b[31m\x07\x9b2J\u202e"
UNSEEN_CONTROLS = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def run(*arguments, charset="utf-8"):
    runner = CliRunner(charset=charset)
    return runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


def refused(told, message, folder, left):
    """Whether a command ended as it should: exit code 2, one line, nothing new in the folder."""
    assert told.exit_code == 2, told.output
    assert len(told.stderr.strip().splitlines()) == 1 and told.stderr.startswith("error: "), told.stderr
    assert re.search(message, told.stderr), told.stderr
    assert told.stdout == ""
    assert sorted(os.listdir(folder)) == sorted(left)


def patients(n_rows=None):
    """Diabetes patients as a clinic would keep them: categories, dates, missing cells, free text."""
    rng = np.random.default_rng(0)
    frame = load_diabetes(as_frame=True, scaled=False).frame.rename(
        columns={"target": "progression", "s6": "sugar in $$"}
    )
    frame = frame if n_rows is None else frame.sample(n_rows, random_state=0, ignore_index=True)
    n = len(frame)
    frame["sex"] = frame["sex"].map({1.0: "female", 2.0: "male"})
    frame["clinic"] = rng.choice(["north", "south", "east"], n)
    frame["visit"] = (pd.Timestamp("2019-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D")).strftime("%Y-%m-%d")
    frame["note"] = [f"patient {i} feels {rng.choice(['well', 'tired'])}" for i in range(n)]
    frame.insert(0, "patient_id", [f"P{i:04d}" for i in range(n)])
    for name in ("bmi", "clinic"):
        frame.loc[rng.random(n) < 0.1, name] = None
    frame.loc[3, "progression"] = None
    return frame
