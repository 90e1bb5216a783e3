"""What all commands share: text on terminals, errors, warnings, signals, help."""

import json
import os
import pickle
import signal
import subprocess
import sys
import warnings

import pytest
import typer
from command_line import UNSEEN_CONTROLS, run
from typer.testing import CliRunner

import anchored
from anchored.cli import app
from anchored.cli.console import Output, command_output
from anchored.errors import ArgumentError, MissingPackageError, TableError
from anchored.methods.short_training import ShortTrainingWarning


def test_tables_of_the_terminal_show_what_they_are_given(capsys):
    Output(False).table([r"\[bold]head", ""], [["two\nlines\r", "[red]x[/] :smile:"], ["[link=http://x]y", "\ud800"]])
    told = capsys.readouterr().out
    for shown in (r"\[bold]head", r"two\nlines\r", "[red]x[/] :smile:", "[link=http://x]y", r"\ud800"):
        assert shown in told
    assert not UNSEEN_CONTROLS.search(told)


def test_terminals_that_know_ascii_alone(folder, model):
    told = run("evaluate", model, folder / "others.csv", charset="ascii")
    assert told.exit_code == 0 and "RMSE" in told.stdout and "R?" in told.stdout


def test_a_command_that_is_ended_leaves_nothing(folder, model, tmp_path, monkeypatch):
    """SIGTERM in the middle of writing removes what was written, and ends with the exit code of the signal."""
    written = []

    def write(self, *arguments):
        written.extend(os.listdir(tmp_path))
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("anchored.tables.model.TableModel.predict", write)
    before = signal.getsignal(signal.SIGTERM)
    ended = run("predict", model, folder / "others.csv", "-o", tmp_path / "p.csv")
    assert ended.exit_code == 143 and signal.getsignal(signal.SIGTERM) is before
    assert len(written) == 1 and written[0].endswith(".part") and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ArgumentError("max_memory_gb", "is 2", "raise it"), "--max-memory-gb is 2; raise it"),
        (
            TableError("d.csv", "bad", "Mend it", (("ignore", "a b"), ("task", "regression"))),
            "d.csv: bad. Mend it. Or use --ignore 'a b' or --task regression",
        ),
        (OSError("two\n  lines"), "two lines"),
    ],
)
def test_errors_name_options(capsys, error, message):
    with pytest.raises(typer.Exit) as ended, command_output(False):
        raise error
    assert ended.value.exit_code == 2 and capsys.readouterr().err == f"error: {message}\n"


@pytest.mark.parametrize("error", [ArgumentError("n_jobs", "must be 1"), KeyError("x"), ImportError("a bug")])
def test_bugs_are_raised(error):
    with pytest.raises(type(error)), command_output(False):
        raise error


def test_warnings_name_options(capsys):
    with command_output(False):
        for _ in range(2):
            warnings.warn(ShortTrainingWarning("still falling", "max_iter", "learning_rate_init"), stacklevel=1)
    assert capsys.readouterr().err == "note: still falling. Raise --max-iter of anchored fit.\n"


def test_machines_are_told_of_errors_too(tmp_path):
    told = run("fit", tmp_path / "none.csv", "-t", "y", "--json")
    assert told.exit_code == 2 and json.loads(told.stdout) == {
        "error": f"{tmp_path / 'none.csv'}: there is no such file"
    }


def test_version():
    assert run("--version").stdout == f"anchored {anchored.__version__}\n"


def test_usage_errors_end_with_two():
    assert run("fit", "data.csv").exit_code == 2
    assert run("predict").exit_code == 2
    assert run("nothing").exit_code == 2


def test_without_pyarrow_it_says_what_to_install(folder):
    code = "import sys; sys.modules['pyarrow'] = None\nfrom anchored.cli import app; app()"
    command = [sys.executable, "-c", code, "fit", str(folder / "patients.csv"), "-t", "age"]
    told = subprocess.run(command, capture_output=True, text=True)
    assert (
        told.returncode == 2
        and told.stderr == "error: pyarrow is needed for tables, but is not installed: pip install 'anchored[tables]'\n"
    )


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate", "certify", "report"])
def test_help_has_examples(command):
    told = run(command, "--help")
    assert told.exit_code == 0 and f"anchored {command} " in told.stdout and "Example" in told.stdout


def test_help_loads_no_large_library():
    """So that it is fast."""
    code = (
        "import sys; from typer.testing import CliRunner; from anchored.cli import app\n"
        "told = CliRunner().invoke(app, ['--help']); print(told.stdout)\n"
        "print(*(name for name in ('numpy', 'jax', 'sklearn', 'pyarrow', 'matplotlib') if name in sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(name in told for name in ("fit", "predict", "evaluate", "certify"))
    assert told.splitlines()[-1] == ""


def test_shells_complete():
    def completed(**words):
        return CliRunner().invoke(app, [], prog_name="anchored", env=words).stdout

    words = {"COMP_WORDS": "anchored ev", "COMP_CWORD": "1"}
    assert completed(_ANCHORED_COMPLETE="complete_bash", **words).split() == ["evaluate"]
    script = completed(_ANCHORED_COMPLETE="source_bash")
    assert "complete" in script and "_ANCHORED_COMPLETE" in script


def test_errors_survive_pickling():
    """As they must to come back from another process."""
    for error in (MissingPackageError("plots", "matplotlib", "plot"), ArgumentError("out", "is a folder", "move it")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))
