"""What the commands for tables tell people about columns, scores and values unlike the fit."""

from typing import TYPE_CHECKING

from anchored.cli.console import Console

if TYPE_CHECKING:
    from anchored.tables.model import TableModel
    from anchored.tables.novelties import Novelty
    from anchored.tables.scores import Scores

FEW_VALUES = 10  # different numbers in a target, which may be meant as classes


def show_columns(terminal: Console, model: "TableModel", n_rows: int, day_first: bool) -> None:
    """Print how each column of a table of `n_rows` rows was read; `day_first` is the option of that name."""
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


def show_scores(terminal: Console, found: "Scores", title: str) -> None:
    """Print the scores `found` below `title`, and whether the uncertainty is calibrated."""
    from anchored.tables import scores

    terminal.say(title)
    terminal.table(["", ""], scores.written(found))
    terminal.say(f"Calibration: {scores.calibration(found)}.")


def show_novelties(terminal: Console, novelties: list["Novelty"]) -> None:
    """Print what was unlike the fit: each unknown value, and how many rows lie outside the range of a column."""
    unknown = [novelty for novelty in novelties if novelty.is_unknown]
    outside = [novelty for novelty in novelties if not novelty.is_unknown]
    for novelty in unknown:
        terminal.note(str(novelty))
    if unknown:
        terminal.note("such rows are predicted with more uncertainty; --strict makes them an error")
    if outside:
        listed = ", ".join(f"{novelty.column} in {novelty.n_rows:,}" for novelty in outside)
        terminal.note(f"outside the range seen at the fit (rows): {listed}")


def hint_at_classes(terminal: Console, model: "TableModel") -> None:
    """Say that a target of few different numbers was read as numbers, though they may be meant as classes."""
    if model.target.n_distinct <= FEW_VALUES and model.target.task == "regression":
        terminal.note(
            f"{model.target.name!r} has {model.target.n_distinct} different values, read as numbers; "
            "--task classification makes them classes"
        )
