"""Read a saved estimator back."""

from typing import Any

from anchored import storage
from anchored.estimators import persistence
from anchored.estimators.classifier import AnchoredClassifier
from anchored.estimators.regressor import AnchoredRegressor

KINDS = {kind.__name__: kind for kind in (AnchoredRegressor, AnchoredClassifier)}


def load(path: Any, network: Any = None) -> Any:
    """The estimator that `save` wrote. `network` is needed where it was fitted with one of your own."""
    return load_with_table(path, network)[0]


def load_with_table(path: Any, network: Any = None) -> tuple[Any, dict[str, Any] | None]:
    """The estimator, and what the columns of a file mean to it where it was fitted to one."""
    header, arrays = storage.read(path)
    if header.get("kind") not in KINDS:
        raise storage.StorageError(f"{str(path)!r} holds no estimator of this anchored: {header.get('kind')!r}")
    estimator = KINDS[header["kind"]](**persistence.restored_params(header, network, path))
    persistence.restore(estimator, header, arrays, path)
    return estimator, header.get("table")
