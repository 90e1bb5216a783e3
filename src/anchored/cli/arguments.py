"""Arguments that several commands for tables share."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

ModelFile = Annotated[Path, Argument(help="A model written by [bold]anchored fit[/bold].", show_default=False)]
DataFile = Annotated[
    Path,
    Argument(
        help="A CSV file whose first row names the columns, or a Parquet, Arrow or Excel file; - is standard input.",
        show_default=False,
    ),
]
DataFiles = Annotated[
    list[Path],
    Argument(
        help="CSV files whose first rows name the columns, Parquet, Arrow or Excel files, or a folder of such files; - "
        "is standard input.",
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
        help="Use the workers of a Dask cluster; the address of its scheduler, such as tcp://10.0.0.7:8786.",
        show_default=False,
    ),
]
