"""Models of tables: fit to CSV and Parquet files, and predict them with uncertainty."""

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError("tables need pyarrow: pip install 'anchored[tables]'") from error
