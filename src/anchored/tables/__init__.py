"""Models of tables: fit a model to the rows of a CSV or Parquet file, and predict other rows with uncertainty."""

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError("tables need pyarrow: pip install 'anchored[tables]'") from error
