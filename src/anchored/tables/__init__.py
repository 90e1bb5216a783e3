"""Models of tables: data frames, or the rows of files."""

from importlib import import_module
from typing import Any

from anchored.errors import MissingPackageError

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingPackageError("tables", "pyarrow", "tables") from error

__all__ = ["TableClassifier", "TableEncoder", "TableRegressor", "load"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that an error about a file is raised before JAX is imported."""
    if name in __all__:
        return getattr(import_module("anchored.tables.estimators"), name)
    raise AttributeError(f"module 'anchored.tables' has no attribute {name!r}")
