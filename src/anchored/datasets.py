"""Data sets by name: five that scikit-learn includes, and nine regression sets of the UCI repository.

The literature on Bayesian neural networks compares methods on the UCI sets. Such a set is read from the file
`<data_dir>/uci/<file>.npz`, which holds the arrays `X` and `y`. `data_dir` is an argument of `load`, or the environment
variable ANCHORED_DATA. Without either, the set is downloaded from OpenML.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn import datasets as sklearn_datasets
from sklearn.utils import Bunch

DATA_VARIABLE = "ANCHORED_DATA"  # environment variable that names the folder that contains uci/
TRAIN_SHARE = 0.9  # fraction of the rows that the literature's splits use for training
SPLIT_SEED = 1  # random seed of the literature's splits


@dataclass(frozen=True)
class Dataset:
    """A data set: its inputs and targets."""

    name: str  # one of `names()`
    X: np.ndarray  # (rows, features), float64
    y: np.ndarray  # (rows,), float64: numbers, or class indices
    target: str  # description of y


@dataclass(frozen=True)
class _UciSet:
    """Where a UCI set is found, its size and its target."""

    file: str  # name of the file, without its suffix
    n_rows: int
    n_features: int
    target: str  # description of y
    openml: dict[str, str | int] | None  # arguments of fetch_openml; None if OpenML does not have the set


BUNDLED: dict[str, tuple[Callable[..., Bunch], str]] = {  # name -> (function of scikit-learn, description of y)
    "breast_cancer": (sklearn_datasets.load_breast_cancer, "0 malignant, 1 benign"),
    "diabetes": (sklearn_datasets.load_diabetes, "progression of the disease after one year"),
    "digits": (sklearn_datasets.load_digits, "the handwritten digit"),
    "iris": (sklearn_datasets.load_iris, "species of iris"),
    "wine": (sklearn_datasets.load_wine, "grower of the wine"),
}

UCI = {
    "boston": _UciSet("bostonHousing", 506, 13, "median value of homes, 1,000 $", {"data_id": 531}),
    "concrete": _UciSet("concrete", 1030, 8, "compressive strength, MPa", {"data_id": 44959}),
    "energy": _UciSet("energy", 768, 8, "heating load, kWh/m²", {"data_id": 44960}),
    "kin8nm": _UciSet("kin8nm", 8192, 8, "distance of a robot arm's end from a target", {"data_id": 44980}),
    "naval": _UciSet("naval-propulsion-plant", 11934, 16, "decay of the compressor", {"data_id": 44969}),
    "power": _UciSet("power-plant", 9568, 4, "electrical power, MW", None),
    "protein": _UciSet("protein-tertiary-structure", 45730, 9, "size of the residue, Å", {"data_id": 44963}),
    "wine_red": _UciSet("wine-quality-red", 1599, 11, "quality from 0 to 10", {"data_id": 44972}),
    "yacht": _UciSet("yacht", 308, 6, "residuary resistance", {"name": "yacht_hydrodynamics", "version": 1}),
}


def names() -> list[str]:
    """Return all names that `load` accepts."""
    return sorted([*BUNDLED, *UCI])


def load(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set.

    The rows on OpenML may be in another order than in the files. The splits of `standard_splits` are then not those of
    the literature.

    Parameters
    ----------
    name : str
        One of `names()`.
    data_dir : path, optional
        Folder that contains `uci/`. If it is None and the environment variable ANCHORED_DATA is not set, a UCI set is
        downloaded.

    Returns
    -------
    Dataset
        Inputs, targets and a description of the targets.

    Raises
    ------
    ValueError
        If the name is not known.
    FileNotFoundError
        If the file is missing, or the set cannot be downloaded.

    Examples
    --------
    >>> load("iris").X.shape
    (150, 4)
    """
    if name in BUNDLED:
        loader, target = BUNDLED[name]
        X, y = loader(return_X_y=True)
        return Dataset(name, np.asarray(X, np.float64), np.asarray(y, np.float64), target)
    if name not in UCI:
        raise ValueError(f"there is no data set {name!r}; known names are {', '.join(names())}")
    folder = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE) or None
    X, y = _fetch(name) if folder is None else _read(name, Path(folder))
    return Dataset(name, X, y, UCI[name].target)


def standard_splits(n_rows: int, n_splits: int = 20) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the literature's random splits: nine tenths of the rows for training, one tenth for testing.

    Parameters
    ----------
    n_rows : int
        Number of rows of the data set.
    n_splits : int
        Number of splits.

    Returns
    -------
    list of (ndarray, ndarray)
        Indices of the training rows and of the test rows, for each split.

    Examples
    --------
    >>> train, test = standard_splits(10)[0]
    >>> train, test
    (array([2, 9, 6, 4, 0, 3, 1, 7, 8]), array([5]))
    """
    random = np.random.RandomState(SPLIT_SEED)
    n_train = round(TRAIN_SHARE * n_rows)
    orders = [random.permutation(n_rows) for _ in range(n_splits)]
    return [(order[:n_train], order[n_train:]) for order in orders]


def _read(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read X and y of a UCI set from its file."""
    path = folder / "uci" / f"{UCI[name].file}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"the data set {name!r} is not at {path}. Pass the folder that contains uci/ as data_dir, or set the "
            f"environment variable {DATA_VARIABLE} to it. Without either, the set is downloaded from OpenML."
        )
    with np.load(path) as arrays:
        return arrays["X"].astype(np.float64), arrays["y"].astype(np.float64)


def _fetch(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Download X and y of a UCI set from OpenML."""
    known = UCI[name]
    remedy = (
        f"Store the arrays X and y in a file uci/{known.file}.npz, and pass the folder that contains uci/ as data_dir, "
        f"or set the environment variable {DATA_VARIABLE} to it."
    )
    if known.openml is None:
        raise FileNotFoundError(f"the data set {name!r} is not on OpenML. {remedy}")
    try:
        table = sklearn_datasets.fetch_openml(**known.openml, as_frame=True)
    except (OSError, ImportError, ValueError) as error:  # no network, no pandas, or an error of OpenML
        raise FileNotFoundError(
            f"the data set {name!r} could not be downloaded from OpenML: {error}. {remedy}"
        ) from error
    # A data frame keeps the labels of categorical columns, which are numbers in all of these sets
    X, y = table.data.to_numpy(np.float64), table.target.to_numpy(np.float64)
    if len(X) != known.n_rows:
        raise ValueError(f"OpenML's {name!r} has {len(X)} rows where {known.n_rows} were expected. {remedy}")
    return X, y
