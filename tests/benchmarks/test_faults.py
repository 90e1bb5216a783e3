"""Trials of benchmarks/faults detect faults: loaders and writers that are wrong on purpose are counted as failures."""

import os
import signal
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from faults import commands, damaged, disk, extremes, forged, models, odd_tables, results, special_files
from faults.trial import HELD, Case, Trial
from faults.writers import Writer

from anchored import BayesianRegressor, StorageError
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian
from anchored.tables import saved_model
from anchored.tables.files import open_table
from anchored.tables.model import TableModel
from anchored.tables.schema import Schema
from anchored.tables.scores import score
from anchored.tables.target import Target


def loader(error=None, value=0.0):
    """Return a kind of file whose loader raises `error`, or returns a model that predicts `value`."""

    def load(path):
        if error is not None:
            raise error
        return path

    return models.Kind(lambda path: None, load, lambda loaded: [np.array([1.0, value])])


LOADERS = {
    "refuses": loader(StorageError("field 'kind' is missing")),
    "predicts": loader(),
    "NaN": loader(value=np.nan),
    "KeyError": loader(KeyError("kind")),
}


def start(folder, scratch):
    """Return a check of the loaders above, which can also hang, crash and use too much memory."""

    def check(name):
        if name == "hangs":
            time.sleep(60)
        if name == "crashes":
            os.kill(os.getpid(), signal.SIGSEGV)
        if name == "uses much memory":
            return HELD if np.ones(15_000_000).sum() else "no memory"
        return forged.failure_of_loading(LOADERS[name], scratch)

    return check


NAMES = ("refuses", "predicts", "NaN", "KeyError", "hangs", "refuses", "crashes", "uses much memory", "predicts")


def cases(seed, folder):
    return (Case(name, name) for name in NAMES)


TRIAL = Trial("wrong", "wrong on purpose", len(NAMES), 3, cases, start, seconds=2.0, megabytes=100.0)


def test_every_kind_of_failure_is_counted_and_an_interrupted_trial_continues(tmp_path):
    *_, half = results.run(TRIAL, tmp_path, size=4, seed=0)
    assert (half["tried"], half["held"], half["failed"]) == (4, 2, 2)
    *_, row = results.run(TRIAL, tmp_path, len(NAMES), seed=0, known=half)
    assert (row["tried"], row["held"], row["failed"]) == (9, 4, 5)
    nan, key, hangs, crashes, memory = row["failures"]
    assert nan == "NaN: read, and predicts NaN or infinity"
    assert key.startswith("KeyError: KeyError: 'kind'")
    assert hangs == "hangs: hangs: no answer after 2 s"
    assert crashes == "crashes: crashed: SIGSEGV"
    assert memory.startswith("uses much memory: took 1")
    assert row["longest"] > 2 and row["grown"] > 100e6 and row["seconds"] > half["seconds"]
    assert list(results.run(TRIAL, tmp_path, len(NAMES), 0, row)) == [row]  # a complete trial is not run again


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a Gaussian process and a table model that contains one, which need no training."""
    folder = tmp_path_factory.mktemp("models")
    rows = open_table(models.harbours(folder)).read(models.NAMES)
    target = Target.infer(rows, "ships")
    schema = Schema.infer(replace(rows, columns={name: rows.columns[name] for name in models.NAMES[:3]}))
    process = BayesianRegressor(GaussianProcess(), Gaussian(0.1), prior_scale=2.0, random_state=0)
    matrix, y = schema.encode(rows)[0], target.read(rows)[0]
    scores = score(y, process.fit(matrix, y).predict_dist(matrix), None)
    saved_model.save(TableModel(schema, target, process, scores), folder / "table")
    with pytest.MonkeyPatch.context() as patch:
        for name in models.KINDS.keys() - {"process", "table"}:
            patch.delitem(models.KINDS, name)
        models.prepare(folder)
        yield folder


def failures(trial, folder, scratch, n):
    """Check the first `n` cases of a trial; return the descriptions of those that failed."""
    check = trial.start(folder, scratch)
    found = [(name, check(content)) for (name, content), _ in zip(trial.cases(0, folder), range(n))]
    return {name: failure for name, failure in found if failure}


def test_damaged_files(saved, tmp_path, monkeypatch):
    assert failures(damaged.TRIAL, saved, tmp_path, 160) == {}
    process = models.KINDS["process"]
    original = process.load(saved / "process")
    # A loader that ignores the file: every damage must be detected, except that a block of zeros may stay the same.
    monkeypatch.setitem(models.KINDS, "process", process._replace(load=lambda path: original))
    assert len(failures(damaged.TRIAL, saved, tmp_path, 32)) >= 10


def test_odd_tables_are_read_or_refused_in_one_line(saved, tmp_path):
    check = odd_tables.start(saved, tmp_path)
    quick = (case for case in odd_tables.cases(0, saved) if case.content[0] in ("predict", "evaluate"))
    outcomes = [check(case.content) for case, _ in zip(quick, range(10))]
    assert outcomes == [HELD] * 10


@pytest.mark.parametrize(
    ("code", "stderr", "error", "failure"),
    [
        (0, "", None, HELD),
        (2, "error: there is no file x\n", None, HELD),
        (2, "error: one\nerror: two\n", None, "not one line"),
        (2, "error: \x1b[31mred\n", None, "prints the control character '\\x1b'"),
        (1, "", KeyError("x"), "KeyError: 'x'"),
        (130, "", SystemExit(130), "exit code 130"),
    ],
)
def test_how_commands_may_end(code, stderr, error, failure):
    done = SimpleNamespace(exit_code=code, stderr=stderr, output=stderr, exception=error)
    assert commands.failure_of(done).startswith(failure) and (failure or not commands.failure_of(done))


def test_extreme_numbers(monkeypatch, tmp_path):
    """An estimator that does not undo the standardisation is detected, and so is one that predicts NaN."""

    class Model:
        def __init__(self, **_):
            self.prediction = lambda y: y

        def fit(self, X, y, weights=None):
            self.y = y
            return self

        def predict(self, X, return_std=False):
            mean = self.prediction(self.y)
            return (mean, np.ones(len(X))) if return_std else mean

    class Standardised(Model):
        def __init__(self, **_):
            self.prediction = lambda y: y / np.std(y)

    class NotANumber(Model):
        def __init__(self, **_):
            self.prediction = lambda y: y * np.nan

    monkeypatch.setattr(extremes, "AnchoredRegressor", Model)
    problems = extremes.problems()
    for kind, failure in ((Model, HELD), (Standardised, "R² is"), (NotANumber, "predictions that are not finite")):
        changed = {name: problem._replace(kind=kind) for name, problem in problems.items()}
        monkeypatch.setattr(extremes, "problems", lambda changed=changed: changed)
        outcome = extremes.start(tmp_path, tmp_path)("y × 1e+20")
        assert outcome.startswith(failure) and bool(outcome) == bool(failure)


def write_in_place(path, version):
    path.write_bytes(b"new" * 3000)


def write_and_rename(path, version):
    """Write a temporary file and rename it, without looking at what there is, as many programs do."""
    temporary = path.with_name(f"{path.name}.part")
    temporary.write_bytes(b"new" * 3000)
    os.replace(temporary, path)


@pytest.mark.parametrize(
    ("kind", "write", "failure"),
    [
        (special_files.private, write_in_place, HELD),
        (special_files.private, write_and_rename, "permissions were 600"),
        (special_files.link, write_in_place, HELD),
        (special_files.link, write_and_rename, "the link was replaced"),
        (special_files.folder, write_in_place, HELD),
        (special_files.pipe, write_and_rename, "no error"),
        (special_files.missing_folder, write_and_rename, HELD),
    ],
)
def test_special_files(kind, write, failure, tmp_path):
    path = tmp_path / "inside" / "file"
    path.parent.mkdir()
    kind(path)
    outcome = special_files.check_write(Writer("", write), path, kind)
    assert outcome.startswith(failure) and bool(outcome) == bool(failure)


def naming_the_path(write, clean_up):
    """Return `write` with errors that name the path; if `clean_up`, it also removes its temporary file."""

    def write_or_raise(path, version):
        try:
            write(path, version)
        except OSError as error:
            if clean_up:
                path.with_name(f"{path.name}.part").unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error

    return write_or_raise


@pytest.mark.parametrize(
    ("write", "failure"),
    [
        (naming_the_path(write_and_rename, clean_up=True), HELD),
        (naming_the_path(write_and_rename, clean_up=False), "left behind: ['file.part']"),
        (naming_the_path(write_in_place, clean_up=True), "the old file was changed"),
        (write_and_rename, "does not name the path"),
        (lambda path, version: None, "no error"),
    ],
)
def test_full_disks(write, failure, tmp_path):
    (tmp_path / "here").mkdir()
    outcome = disk.check_write(Writer("", write), 9000, tmp_path / "here" / "file", True, disk.short_files, 0.3)
    assert outcome.startswith(failure) and bool(outcome) == bool(failure)
