"""The bundled sets load, the standard splits are the literature's, and errors name their remedy."""

import os
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from anchored import datasets

FOLDER = Path(os.environ.get(datasets.DATA_VARIABLE, "no folder given"))
needs_data = pytest.mark.skipif(
    not (FOLDER / "uci").is_dir(),
    reason=f"needs the UCI files: set {datasets.DATA_VARIABLE} to the folder that holds uci/",
)


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv(datasets.DATA_VARIABLE, raising=False)


@pytest.fixture
def openml(monkeypatch, no_folder):
    """Stand in for OpenML: whatever is put into it is what a fetch gives."""
    answer = {}

    def fetch(**arguments):
        answer["arguments"] = arguments
        if "error" in answer:
            raise answer["error"]
        return answer["table"]

    monkeypatch.setattr(datasets.bundled, "fetch_openml", fetch)
    return answer


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


def test_the_folder_may_come_from_the_environment(tmp_path, monkeypatch):
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


def test_fewer_splits_are_the_first_of_more():
    for few, many in zip(datasets.standard_splits(50, 2), datasets.standard_splits(50, 20)):
        np.testing.assert_array_equal(few[0], many[0])


def test_an_unknown_name_lists_those_known():
    with pytest.raises(ValueError, match=r"no data set 'bostom'.*boston.*diabetes.*yacht"):
        datasets.load("bostom")


def test_a_missing_file_names_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"yacht.npz.*data_dir.*ANCHORED_DATA"):
        datasets.load("yacht", tmp_path)


def test_without_a_network_the_error_names_the_remedy(openml):
    openml["error"] = URLError("no network")
    with pytest.raises(FileNotFoundError, match=r"no network.*data_dir.*ANCHORED_DATA.*yacht.npz"):
        datasets.load("yacht")


def test_a_set_that_openml_lacks_says_so(openml):
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


def test_another_number_of_rows_from_openml_is_an_error(openml):
    pandas = pytest.importorskip("pandas")
    openml["table"] = SimpleNamespace(data=pandas.DataFrame({"a": [1.0]}), target=pandas.Series([1.0]))
    with pytest.raises(ValueError, match="has 1 rows where 308 were expected"):
        datasets.load("yacht")
