"""Models of tables: fit a model to the rows of a CSV or Parquet file, and predict other rows with uncertainty."""

from anchored.errors import MissingPackageError

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingPackageError("tables", "pyarrow", "tables") from error
