"""Read a saved estimator back."""

from pathlib import Path
from typing import Any

from anchored.estimators import persistence
from anchored.estimators.classifiers import AnchoredClassifier, BayesianClassifier
from anchored.estimators.regressors import AnchoredRegressor, BayesianRegressor
from anchored.storage import archive
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header

KINDS = {kind.__name__: kind for kind in (AnchoredRegressor, AnchoredClassifier, BayesianRegressor, BayesianClassifier)}


def load(path: str | Path, network: object = None) -> Any:
    """The estimator that `save` wrote. `network` is needed where it was fitted with one of your own.

    No code is imported or run, whatever the file holds: what `save` does not write is a StorageError.
    """
    return load_with_table(path, network)[0]


def load_with_table(path: str | Path, network: object = None) -> tuple[Any, Header | None]:
    """The estimator, and what the columns of a file mean to it where it was fitted to one."""
    header, arrays = archive.read(path)
    with archive.reading(path):
        kind = header.text("kind")
        if kind not in KINDS:
            raise archive.StorageError(f"it holds no estimator of this anchored: {kind[:60]!r}")
        estimator = persistence.restored(KINDS[kind], header, Arrays(arrays), network)
        return estimator, None if header.value("table") is None else header.child("table")
