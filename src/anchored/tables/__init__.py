"""Models of tables: CSV and Parquet files in, predictions with their uncertainty out."""

try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError("tables need pyarrow: pip install 'anchored[tables]'") from error
