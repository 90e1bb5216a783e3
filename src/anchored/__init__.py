"""Bayesian inference with anchored ensembles of neural networks."""

from importlib import import_module
from typing import Any

_MODULE_OF_NAME = {  # public name -> the module to import it from
    "AnchoredRegressor": "anchored.estimators",
    "AnchoredClassifier": "anchored.estimators",
    "BayesianRegressor": "anchored.estimators",
    "BayesianClassifier": "anchored.estimators",
    "load": "anchored.estimators.loading",
    "certify": "anchored.certification.certificate",
    "from_flax": "anchored.model.adapters",
    "from_equinox": "anchored.model.adapters",
    "from_functions": "anchored.model.adapters",
    "DivergenceError": "anchored.inference.failures",
    "StorageError": "anchored.storage.headers",
}

_SUBMODULES = ("datasets", "exact", "methods", "metrics", "paper", "playground", "plots", "rl", "tables")

__all__ = [*_MODULE_OF_NAME, *_SUBMODULES]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import the public name `name` only when it is used, so that `import anchored` is fast."""
    if name in _MODULE_OF_NAME:
        return getattr(import_module(_MODULE_OF_NAME[name]), name)
    if name in _SUBMODULES:
        return import_module(f"anchored.{name}")
    raise AttributeError(f"module 'anchored' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all public names."""
    return sorted(__all__)
