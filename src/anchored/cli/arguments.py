"""Arguments that several commands for tables share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

ModelFile = Annotated[Path, Argument(help="A model written by [bold]anchored fit[/bold].", show_default=False)]
DataFile = Annotated[
    Path,
    Argument(
        help="A CSV file with the column names in its first row, or a Parquet, Arrow or Excel file; - reads standard "
        "input.",
        show_default=False,
    ),
]
DataFiles = Annotated[
    list[Path],
    Argument(
        help="CSV files, each with the column names in its first row, Parquet, Arrow or Excel files, or a folder of "
        "such files; - reads standard input.",
        show_default=False,
        metavar="DATA...",
    ),
]
Encoding = Annotated[
    str | None, Option(help="Encoding of a CSV file, such as latin-1. Default: UTF-8.", show_default=False)
]
Strict = Annotated[
    bool,
    Option(
        "--strict",
        help="Raise an error for a category that did not occur in training, or a missing value in a column that had "
        "no missing values in training. Default: predict such rows with more uncertainty.",
    ),
]
ClusterAddress = Annotated[
    str | None,
    Option(
        "--cluster",
        metavar="ADDRESS",
        help="Address of the scheduler of a Dask cluster whose workers are used, such as tcp://10.0.0.7:8786. "
        "Default: this machine only.",
        show_default=False,
    ),
]
