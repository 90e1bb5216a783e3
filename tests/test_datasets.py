"""Data sets load with the right types and rows, the splits are the literature's, and errors name a remedy."""

import os
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from anchored import datasets

FOLDER = Path(os.environ.get(datasets.DATA_VARIABLE, "not set"))
needs_data = pytest.mark.skipif(
    not (FOLDER / "uci").is_dir(),
    reason=f"needs the UCI files: set {datasets.DATA_VARIABLE} to the folder that contains uci/",
)


@pytest.fixture
def no_data_folder(monkeypatch):
    """Unset the environment variable that names the folder of data sets."""
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)


@pytest.fixture
def openml(monkeypatch, no_data_folder):
    """Replace OpenML by a dictionary with the table to return or the error to raise, and the arguments received."""
    response = {}

    def fetch(**arguments):
        response["arguments"] = arguments
        if "error" in response:
            raise response["error"]
        return response["table"]

    monkeypatch.setattr(datasets.sklearn_datasets, "fetch_openml", fetch)
    return response


@pytest.mark.parametrize("name", sorted(datasets.BUNDLED))
def test_bundled_sets_are_float64_tables(name):
    loaded = datasets.load(name)
    assert loaded.name == name
    assert loaded.X.dtype == loaded.y.dtype == np.float64
    assert loaded.X.shape == (len(loaded.y), loaded.X.shape[1])
    assert loaded.target


@needs_data
@pytest.mark.parametrize("name", sorted(datasets.UCI))
def test_uci_sets_have_the_rows_and_splits_of_the_literature(name):
    known = datasets.UCI[name]
    loaded = datasets.load(name, FOLDER)
    assert loaded.X.shape == (known.n_rows, known.n_features)
    assert loaded.X.dtype == loaded.y.dtype == np.float64
    with np.load(FOLDER / "uci" / f"{known.file}.npz") as stored:
        splits = datasets.standard_splits(len(loaded.y), len(stored["train_idx"]))
        np.testing.assert_array_equal([train for train, _ in splits], stored["train_idx"])
        np.testing.assert_array_equal([test for _, test in splits], stored["test_idx"])


def test_the_environment_variable_names_the_folder(tmp_path, monkeypatch):
    (tmp_path / "uci").mkdir()
    np.savez(tmp_path / "uci" / "yacht.npz", X=np.ones((3, 6), np.float32), y=np.arange(3))
    monkeypatch.setenv(datasets.DATA_VARIABLE, str(tmp_path))
    loaded = datasets.load("yacht")
    assert loaded.X.dtype == loaded.y.dtype == np.float64
    np.testing.assert_array_equal(loaded.y, [0, 1, 2])


@pytest.mark.parametrize(("n_rows", "n_train"), [(10, 9), (308, 277), (506, 455), (1599, 1439)])
def test_a_split_uses_every_row_once(n_rows, n_train):
    splits = datasets.standard_splits(n_rows, 3)
    for train, test in splits:
        assert len(train) == n_train
        np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(n_rows))
    assert not np.array_equal(splits[0][1], splits[1][1])


def test_splits_do_not_depend_on_how_many_there_are():
    two, twenty = datasets.standard_splits(50, 2), datasets.standard_splits(50, 20)
    for (train, _), (expected, _) in zip(two, twenty[:2], strict=True):
        np.testing.assert_array_equal(train, expected)


def test_the_error_for_an_unknown_name_lists_the_known_names():
    with pytest.raises(ValueError, match=r"no data set 'bostom'.*boston.*diabetes.*yacht"):
        datasets.load("bostom")


def test_the_error_for_a_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"yacht.npz.*data_dir.*ANCHORED_DATA"):
        datasets.load("yacht", tmp_path)


def test_without_a_network_the_error_names_the_remedy(openml):
    openml["error"] = URLError("no network")
    with pytest.raises(FileNotFoundError, match=r"no network.*yacht.npz.*data_dir.*ANCHORED_DATA"):
        datasets.load("yacht")


def test_a_set_that_is_not_on_openml_is_an_error(openml):
    with pytest.raises(FileNotFoundError, match=r"not on OpenML.*ANCHORED_DATA"):
        datasets.load("power")


def test_rows_from_openml_become_float64(openml):
    pandas = pytest.importorskip("pandas")
    columns = {"number": np.arange(506), "category": pandas.Categorical(["4"] * 506)}
    openml["table"] = SimpleNamespace(data=pandas.DataFrame(columns), target=pandas.Series(np.arange(506)))
    loaded = datasets.load("boston")
    assert openml["arguments"]["data_id"] == 531
    assert loaded.X.dtype == loaded.y.dtype == np.float64
    np.testing.assert_array_equal(loaded.X[:, 1], 4)


def test_a_wrong_number_of_rows_from_openml_is_an_error(openml):
    pandas = pytest.importorskip("pandas")
    openml["table"] = SimpleNamespace(data=pandas.DataFrame({"a": [1.0]}), target=pandas.Series([1.0]))
    with pytest.raises(ValueError, match="has 1 rows where 308 were expected"):
        datasets.load("yacht")
