"""Read a saved estimator back."""

from typing import Any

from anchored import storage
from anchored.estimators import persistence
from anchored.estimators.classifier import AnchoredClassifier
from anchored.estimators.regressor import AnchoredRegressor

KINDS = {kind.__name__: kind for kind in (AnchoredRegressor, AnchoredClassifier)}


def load(path: Any, network: Any = None) -> Any:
    """The estimator that `save` wrote. `network` is needed where it was fitted with one of your own."""
    header, arrays = storage.read(path)
    if header.get("kind") not in KINDS:
        raise storage.StorageError(f"{str(path)!r} holds no estimator of this anchored: {header.get('kind')!r}")
    estimator = KINDS[header["kind"]](**persistence.restored_params(header, network, path))
    persistence.restore(estimator, header, arrays, path)
    return estimator
