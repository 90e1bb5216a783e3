"""The commands for tables: fit, predict, evaluate, certify, report."""

import shlex
import sys
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

from typer import Argument, Option

from anchored.cli.console import AsJson, Console, console, counting, in_options

FEW = 10  # different numbers in a target, which may be classes


class Task(StrEnum):
    """What kind of target it is."""

    auto = "auto"
    regression = "regression"
    classification = "classification"


Model = Annotated[Path, Argument(help="A model that [bold]anchored fit[/bold] has written.", show_default=False)]
Data = Annotated[Path, Argument(help="A CSV or Parquet file; its first row names the columns.", show_default=False)]
Strict = Annotated[
    bool, Option("--strict", help="Stop at a category never seen, or a cell missing where none was at the fit.")
]


def fit(
    data: Data,
    target: Annotated[str, Option("--target", "-t", help="The column to predict.", show_default=False)],
    task: Annotated[Task, Option(help="Numbers or classes; auto looks at the target.")] = Task.auto,
    out: Annotated[
        Path | None, Option("--out", "-o", help="The model's file. Default: the data's name, with .anchored.")
    ] = None,
    members: Annotated[int, Option(min=2, help="Networks in the ensemble.")] = 10,
    hold_out: Annotated[float, Option(min=0.01, max=0.9, help="Share of the rows kept to score on.")] = 0.2,
    ignore: Annotated[list[str] | None, Option(help="A column to leave out. May be repeated.")] = None,
    category: Annotated[
        list[str] | None, Option(help="A column of numbers to read as categories. May be repeated.")
    ] = None,
    day_first: Annotated[
        bool, Option("--day-first", help="Read 3/4/2024 as the third of April where days and months cannot be told.")
    ] = False,
    max_iter: Annotated[
        int | None, Option(min=1, help="Passes over the rows in training. Default: 800, or 400 for classes.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of all that is random.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Learn to predict one column of a table from the others.

    Types are found out, categories and dates are encoded, missing cells are
    filled in and marked, and text is left out. A share of the rows is held out
    to score a first fit; the model that is kept is fitted to all rows.

    [bold]Examples[/bold]
    anchored fit houses.csv --target price
    anchored fit trees.parquet -t height --ignore name --category plot
    """
    with console(as_json) as terminal:
        from anchored.tables.files import check_writable, open_table
        from anchored.tables.model import TableModel

        out = out or data.with_suffix(".anchored")
        started = perf_counter()
        table = open_table(data)
        check_writable(out, [data])
        table.require([target], "named by --target")
        table.require([*(ignore or []), *(category or [])], "named by --ignore or --category")
        rows = table.read(table.names)
        model = TableModel.fit(
            rows,
            target,
            task=task,
            ignore=ignore or [],
            categories=category or [],
            day_first=day_first,
            max_iter=max_iter,
            members=members,
            seed=seed,
            hold_out=hold_out,
            verbose=terminal.verbose,
            tell=terminal.say,
        )
        model.save(out)
        show_columns(terminal, model, len(rows), day_first)
        _show_scores(terminal, model.held_out, "Rows held out, predicted by a model that had not seen them:")
        _hint_at_classes(terminal, model)
        terminal.say(f"Model: {out}  (anchored predict {out} FILE)")
        terminal.result(
            {
                "model": str(out),
                "target": model.target.name,
                "task": model.target.task,
                "rows": model.n_rows,
                "rows_without_target": len(rows) - model.n_rows,
                **model.schema.to_json(),
                "held_out": model.held_out,
                "seconds": round(perf_counter() - started, 3),
            }
        )


def predict(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="A .csv, .tsv or .parquet file. Default: the data's name, .predictions.csv."),
    ] = None,
    coverage: Annotated[float, Option(min=0.01, max=0.999, help="Of the intervals.")] = 0.95,
    keep: Annotated[list[str] | None, Option(help="A column of the data to copy. May be repeated.")] = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> None:
    """Predict every row of a table, with its uncertainty.

    A number gets its mean, std (of an observation), epistemic_std (the part of
    it that more data would shrink) and the ends of an interval. A class gets
    the predicted label, a probability for each label, and entropies in nats.
    Files of any length are read and written piece by piece. Columns may stand
    in any order; those the model does not know are ignored.

    [bold]Examples[/bold]
    anchored predict houses.anchored new.csv --out predictions.csv
    anchored predict houses.anchored new.csv --keep id --coverage 0.8
    """
    with console(as_json) as terminal:
        from anchored.tables.files import check_format, check_writable
        from anchored.tables.model import TableModel
        from anchored.tables.prediction import predict_file

        out = out or data.with_name(f"{data.stem}.predictions.csv")
        check_writable(out, [data, model])
        check_format(out)
        fitted = TableModel.load(model)
        started = perf_counter()
        with counting(not as_json and sys.stderr.isatty(), "predicted") as on_rows:
            n_rows, surprises = predict_file(
                fitted, data, out, coverage=coverage, keep=keep or [], strict=strict, on_rows=on_rows
            )
        seconds = perf_counter() - started
        _show_surprises(terminal, surprises)
        terminal.say(f"Predictions of {n_rows:,} rows: {out}  ({n_rows / seconds:,.0f} rows a second)")
        terminal.result(
            {
                "predictions": str(out),
                "rows": n_rows,
                "surprises": [asdict(surprise) for surprise in surprises],
                "seconds": round(seconds, 3),
            }
        )


def evaluate(model: Model, data: Data, strict: Strict = False, as_json: AsJson = False) -> None:
    """Score a model on rows whose target is known.

    How large its errors are, and whether its uncertainty is honest. Give rows
    that the model has not seen: of those it was fitted to, errors are too
    small. Rows without a target are passed over.

    [bold]Example[/bold]
    anchored evaluate houses.anchored sold-since.csv
    """
    with console(as_json) as terminal:
        from anchored.tables import scores
        from anchored.tables.model import TableModel
        from anchored.tables.prediction import predict_known

        fitted = TableModel.load(model)
        with counting(not as_json and sys.stderr.isatty(), "predicted") as on_rows:
            y, predictive, surprises = predict_known(fitted, data, strict, on_rows)
        found = scores.score(y, predictive, fitted.classes)
        _show_surprises(terminal, surprises)
        _show_scores(terminal, found, f"{fitted.target.name} in {data}:")
        terminal.result({**found, "surprises": [asdict(surprise) for surprise in surprises]})


def certify(
    model: Model,
    data: Data,
    max_memory_gb: Annotated[float, Option(min=0.1, help="The exact posterior needs matrices of rows × rows.")] = 2.0,
    as_json: AsJson = False,
) -> None:
    """Compare a model's uncertainty with the exact Bayesian answer.

    For regression, given the rows it was fitted to. It says how far the spread
    of the members is from that of the exact posterior, how much of that is
    chance with so few members, and what would help.

    [bold]Example[/bold]
    anchored certify houses.anchored houses.csv
    """
    with console(as_json) as terminal:
        from anchored.tables.files import open_table
        from anchored.tables.model import TableModel

        fitted = TableModel.load(model)
        table = open_table(data)
        names = [*fitted.schema.names, fitted.target.name]
        table.require(names, "which the model was fitted to")
        certificate = fitted.certify(table.read(names), max_memory_gb)
        for line in in_options(str(certificate)).splitlines():
            terminal.say(line)
        terminal.result(
            {
                "finding": certificate.finding,
                "verdict": certificate.verdict,
                "distances": certificate.distances,
                "by_chance": {name: span._asdict() for name, span in certificate.perfect.items()},
                "in_theory": certificate.predicted,
                "reference": certificate.reference,
                "members": certificate.n_members,
                "rows": certificate.n_rows,
            }
        )


def report(
    model: Model,
    data: Data,
    out: Annotated[
        Path | None, Option("--out", "-o", help="An HTML file. Default: the model's name, with .html.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page about a model: calibration, intervals, what it is unsure of and why.

    The page is one HTML file that opens from disk. It compares the model with
    rows whose target is known; give rows that it has not seen.

    [bold]Example[/bold]
    anchored report houses.anchored sold-since.csv --out houses.html
    """
    with console(as_json) as terminal:
        from anchored.storage import atomic
        from anchored.tables.files import check_writable, open_table
        from anchored.tables.model import TableModel
        from anchored.tables.report import report as page_of

        out = out or model.with_suffix(".html")
        check_writable(out, [data, model])
        command = shlex.join(["anchored", "report", str(model), str(data), "--out", str(out)])
        page, numbers = page_of(TableModel.load(model), model.name, open_table(data), command)
        atomic.write_text(out, page)
        terminal.say(f"Calibration: {numbers['verdict']}.")
        terminal.say(f"Report: {out}")
        terminal.result({"report": str(out), **numbers})


def show_columns(terminal: Console, model: Any, n_rows: int, day_first: bool) -> None:
    """What was made of the table."""
    rows = [[c.name, c.kind, f"{c.n_missing:,}" if c.n_missing else "", str(c)] for c in model.schema.columns]
    rows += [[name or "(no name)", "left out", "", why] for name, why in model.schema.left_out.items()]
    terminal.table(["column", "read as", "missing", ""], rows)
    if any(column.n_missing for column in model.schema.columns):
        terminal.say("Missing numbers and dates are set to the median and marked; a missing category is a level.")
    for column in model.schema.columns:
        if getattr(column, "is_ambiguous", False) and not day_first:
            terminal.note(f"{column.name}: dates are read as month/day/year, and could be day/month/year: --day-first")
    if n_rows > model.n_rows:
        terminal.note(f"{n_rows - model.n_rows:,} of {n_rows:,} rows have no {model.target.name!r}, and were left out")


def _show_scores(terminal: Console, found: dict[str, float], title: str) -> None:
    from anchored.tables import scores

    terminal.say(title)
    terminal.table(["", ""], scores.written(found))
    terminal.say(f"Calibration: {scores.verdict(found)}.")


def _show_surprises(terminal: Console, surprises: list[Any]) -> None:
    strange = [surprise for surprise in surprises if surprise.is_strange]
    outside = [surprise for surprise in surprises if not surprise.is_strange]
    for surprise in strange:
        terminal.note(str(surprise))
    if strange:
        terminal.note("such rows are predicted with less certainty; --strict makes them an error")
    if outside:
        listed = ", ".join(f"{surprise.column} in {surprise.n_rows:,}" for surprise in outside)
        terminal.note(f"outside the range seen at the fit (rows): {listed}")


def _hint_at_classes(terminal: Console, model: Any) -> None:
    """A few whole numbers may stand for classes, which the file does not tell."""
    if model.target.n_distinct <= FEW and model.target.task == "regression":
        terminal.note(
            f"{model.target.name!r} has {model.target.n_distinct} different values, read as numbers; "
            "--task classification makes them classes"
        )
