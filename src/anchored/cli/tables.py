"""The commands `fit` and `predict`, for tables."""

import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated

from typer import Option

from anchored.cli.arguments import ClusterAddress, DataFile, DataFiles, Encoding, ModelFile, Strict
from anchored.cli.console import AsJson, Output, command_output, row_counter
from anchored.cli.messages import (
    show_columns,
    show_guarantee,
    show_novelties,
    show_scores,
    suggest_classification,
)
from anchored.errors import ArgumentError

if TYPE_CHECKING:
    from anchored.tables.model import TableModel


class TaskOption(StrEnum):
    """The values of --task, as in `tables.target.Task`, which is not imported here because it would load NumPy."""

    auto = "auto"
    regression = "regression"
    classification = "classification"


def default_name(data: Path, suffix: str) -> Path:
    """Return `data` with its suffix replaced by `suffix`; for standard input, a file "model" in the current folder."""
    return Path(f"model{suffix}") if str(data) == "-" else data.with_suffix(suffix)


def parsed_types(types: list[str]) -> dict[str, str]:
    """Return `types`, values of --type such as zip=category, as a dictionary of kinds by column."""
    pairs = [entry.rpartition("=") for entry in types]
    wrong = [kind for name, sign, kind in pairs if not sign]
    if wrong:
        raise ArgumentError("types", f"must be like zip=category, got {wrong[0]!r}")
    return {name: kind for name, _, kind in pairs}


def fit(
    data: DataFiles,
    target: Annotated[str, Option("--target", "-t", help="Name of the column to predict.", show_default=False)],
    task: Annotated[
        TaskOption, Option(help="Whether to predict numbers or classes; auto infers the task from the target.")
    ] = TaskOption.auto,
    out: Annotated[
        Path | None,
        Option(
            "--out", "-o", help="File to write the model to. Default: the name of the data with the suffix .anchored."
        ),
    ] = None,
    members: Annotated[int, Option(min=2, help="Number of members of the ensemble.")] = 10,
    hold_out: Annotated[
        float, Option(min=0.01, max=0.9, help="Share of the rows that are held out, to score a first fit.")
    ] = 0.2,
    guarantee: Annotated[
        float | None,
        Option(
            min=0.01,
            max=0.999,
            show_default=False,
            help="Guarantee that intervals (or sets of classes) contain the observation with this probability, such "
            "as 0.95. The held-out rows are used for this, and the model is not fitted to them.",
        ),
    ] = None,
    ignore: Annotated[list[str] | None, Option(help="Name of a column to leave out. May be repeated.")] = None,
    types: Annotated[
        list[str] | None,
        Option(
            "--type",
            metavar="COLUMN=KIND",
            help="Read a column as number, category or date, such as zip=category. May be repeated.",
        ),
    ] = None,
    decimal: Annotated[
        str | None, Option(help="Decimal mark of numbers: a point or a comma. Default: inferred for each column.")
    ] = None,
    thousands: Annotated[
        str | None,
        Option(help="Mark between groups of digits, such as a comma. Default: inferred for each column."),
    ] = None,
    na_values: Annotated[
        list[str] | None, Option("--na", help="Text that means a missing value, such as unknown. May be repeated.")
    ] = None,
    date_format: Annotated[
        str | None, Option(help="Format of dates, such as %d/%m/%Y. Default: inferred for each column.")
    ] = None,
    encoding: Encoding = None,
    max_iter: Annotated[
        int | None,
        Option(min=1, help="Number of epochs of training. Default: depends on the number of rows."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Random seed of the held-out rows and of training.")] = 0,
    checkpoint: Annotated[
        Path | None,
        Option(
            help="Folder for the progress of training, which the first run creates. After an interruption, repeat the "
            "same command to continue. The folder is removed when the model is written."
        ),
    ] = None,
    cluster: ClusterAddress = None,
    as_json: AsJson = False,
) -> None:
    """Learn to predict one column of a table from the others.

    Each column is read as numbers, categories or dates, depending on its
    values. Missing values are filled in and flagged to the model, and free
    text is left out. Several files, or the files of a folder, are read as one
    table.

    Two models are fitted: the first without the held-out rows, on which it is
    scored, the second to all rows. The second model is written. With
    --guarantee, only the first is fitted, and it is written. Tables of more
    than 262,144 rows, which may be larger than memory, are also fitted only
    once, with at most 20,000 held-out rows.

    [bold]Examples[/bold]
    anchored fit houses.csv --target price
    anchored fit trees.parquet -t height --ignore name --type plot=category
    anchored fit houses.csv --target price --guarantee 0.9
    anchored fit big/*.parquet --target y --checkpoint progress
    """
    with command_output(as_json) as output:
        from anchored.tables.formats import ReadingOptions
        from anchored.tables.table_sets import open_tables
        from anchored.tables.writing import check_writable

        out = out or default_name(data[0], ".anchored")
        started = perf_counter()
        options = ReadingOptions(
            tuple(ignore or ()), parsed_types(types or []), decimal, thousands, tuple(na_values or ()), date_format
        )
        options.check()
        table = open_tables(data, encoding)
        check_writable(out, [file.path for file in table.tables])
        for argument, names in (("target", [target]), ("ignore", options.ignore), ("types", list(options.types or ()))):
            table.tables[0].require_argument(argument, names)
        from anchored.inference.cluster import connected
        from anchored.tables import fitting, saved_model  # slow to import, so after the names are checked

        with connected(cluster):
            model, n_rows, n_unknown = fitting.fit_files(
                table,
                target,
                task=task,
                options=options,
                max_iter=max_iter,
                members=members,
                seed=seed,
                hold_out=hold_out,
                coverage=guarantee,
                verbose=output.verbose,
                checkpoint=checkpoint,
                on_stage=output.info,
            )
        saved_model.save(model, out)
        if checkpoint is not None:
            fitting.remove_checkpoint(checkpoint)
        _show_fit(output, model, out, n_rows, n_unknown, perf_counter() - started)


def _show_fit(output: Output, model: "TableModel", out: Path, n_rows: int, n_unknown: int, seconds: float) -> None:
    """Show how `fit` has read the table, the scores of `model`, and `out`, the file of the model.

    The table had `n_rows` rows, `n_unknown` of them without a target; the fit took `seconds`.
    """
    assert model.held_out is not None
    show_columns(output, model, n_rows, n_unknown)
    show_scores(output, model.held_out, "Scores of the first fit on the held-out rows:")
    show_guarantee(output, model)
    suggest_classification(output, model)
    output.info(f"Model: {out}  (anchored predict {out} FILE)")
    output.result(
        {
            "model": str(out),
            "target": model.target.name,
            "task": model.target.task,
            "rows": model.n_rows,
            "rows_without_target": n_unknown,
            **model.schema.to_json(),
            "held_out": dict(model.held_out),
            "guarantee": asdict(model.estimator.guarantee_) if model.estimator.guarantee_ else None,
            "seconds": round(seconds, 3),
        }
    )


def predict(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            "-o",
            help="File to write predictions to, with the suffix .csv, .tsv or .parquet; - writes to standard output. "
            "Default: the name of the data with the suffix .predictions.csv.",
        ),
    ] = None,
    coverage: Annotated[
        float, Option(min=0.01, max=0.999, help="Probability that an interval contains the observation.")
    ] = 0.95,
    keep: Annotated[
        list[str] | None, Option(help="Name of a column to copy from the data to the predictions. May be repeated.")
    ] = None,
    keep_all: Annotated[bool, Option("--keep-all", help="Copy all columns from the data to the predictions.")] = False,
    strict: Strict = False,
    encoding: Encoding = None,
    cluster: ClusterAddress = None,
    as_json: AsJson = False,
) -> None:
    """Predict every row of a table, with its uncertainty.

    For regression, writes the mean, std (of an observation), epistemic_std (the
    part that more data would reduce) and the ends of an interval. For classes,
    writes the most probable label, the probability of each label, and the total,
    aleatoric and epistemic entropy in nats. If the model was fitted with
    --guarantee, also writes the guaranteed interval, or whether each label is in
    the guaranteed set. Files are read and written in batches, and may be larger
    than memory. Columns may be in any order; unknown columns are ignored.

    [bold]Examples[/bold]
    anchored predict houses.anchored new.csv --out predictions.csv
    anchored predict houses.anchored new.csv --keep id --coverage 0.8
    cat new.csv | anchored predict houses.anchored - --out -
    """
    with command_output(as_json) as output:
        from anchored.inference.cluster import connected
        from anchored.tables import saved_model
        from anchored.tables.files import STANDARD_STREAM
        from anchored.tables.prediction import predict_file
        from anchored.tables.writing import check_format, check_writable

        out = out or (STANDARD_STREAM if data == STANDARD_STREAM else data.with_name(f"{data.stem}.predictions.csv"))
        output.is_quiet = out == STANDARD_STREAM
        check_writable(out, [data, model])
        check_format(out)
        fitted = saved_model.load(model)
        started = perf_counter()
        with connected(cluster), row_counter(not as_json and sys.stderr.isatty(), "predicted") as on_rows:
            n_rows, novelties = predict_file(
                fitted,
                data,
                out,
                coverage=coverage,
                keep=None if keep_all else keep or [],
                strict=strict,
                encoding=encoding,
                on_rows=on_rows,
            )
        seconds = perf_counter() - started
        show_novelties(output, novelties)
        output.info(f"Predictions of {n_rows:,} rows: {out}  ({n_rows / seconds:,.0f} rows/s)")
        output.result(
            {
                "predictions": str(out),
                "rows": n_rows,
                "novelties": [novelty.to_json() for novelty in novelties],
                "seconds": round(seconds, 3),
            }
        )
