"""Load a saved estimator from its file."""

from pathlib import Path

from anchored.estimators import persistence
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.classifiers import AnchoredClassifier, BayesianClassifier
from anchored.estimators.regressors import AnchoredRegressor, BayesianRegressor
from anchored.storage import archive
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header

ESTIMATORS: dict[str, type[BayesianEstimator]] = {
    estimator.__name__: estimator
    for estimator in (AnchoredRegressor, AnchoredClassifier, BayesianRegressor, BayesianClassifier)
}


def load(path: str | Path, network: object = None) -> BayesianEstimator:
    """Load an estimator from the file that its method `save` wrote.

    Loading never imports or runs code from the file, even if the file was manipulated. A file that `save` could not
    have written raises a StorageError.

    Parameters
    ----------
    path : str or Path
        The file.
    network : Flax or Equinox module, pair `(init, apply)`, or None
        The custom network that the estimator was fitted with, if any. It is code, and therefore not in the file.

    Returns
    -------
    AnchoredRegressor, AnchoredClassifier, BayesianRegressor or BayesianClassifier
        The fitted estimator.
    """
    return load_with_table(path, network)[0]


def load_with_table(path: str | Path, network: object = None) -> tuple[BayesianEstimator, Header | None]:
    """Load an estimator, and the description of the table that it was fitted to.

    Parameters
    ----------
    path : str or Path
        The file.
    network : Flax or Equinox module, pair `(init, apply)`, or None
        The custom network that the estimator was fitted with, if any.

    Returns
    -------
    estimator : BayesianEstimator
        The fitted estimator.
    table : Header or None
        The description of the table's columns; None if the estimator was not fitted to a table.
    """
    header, arrays = archive.read(path)
    with archive.reading(path):
        kind = header.text("kind")
        if kind not in ESTIMATORS:
            raise archive.StorageError(
                f"it does not hold an estimator that this version of anchored knows: {kind[:60]!r}"
            )
        estimator = persistence.restore(ESTIMATORS[kind], header, Arrays(arrays), network)
        return estimator, None if header.value("table") is None else header.child("table")
