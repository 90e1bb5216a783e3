"""Messages of the commands for tables, about columns, scores and values unlike the training data."""

from typing import TYPE_CHECKING

from anchored.cli.console import Output

if TYPE_CHECKING:
    from anchored.tables.model import TableModel
    from anchored.tables.novelties import Novelty
    from anchored.tables.scores import Scores

FEW_VALUES = 10  # a target with at most this many different numbers may be meant as classes


def show_columns(output: Output, model: "TableModel", n_rows: int, n_unknown: int) -> None:
    """Print to `output` how `model` reads each column, and notes about what it does not read or may read wrongly.

    `n_rows` is the number of rows of the table, `n_unknown` of which have no target.
    """
    from anchored.tables.dates import in_words as date_in_words

    rows = [[c.name, c.kind, f"{c.n_missing:,}" if c.n_missing else "", str(c)] for c in model.schema.columns]
    rows += [[name or "(no name)", "left out", "", why] for name, why in model.schema.left_out.items()]
    output.table(["column", "read as", "missing", ""], rows)
    if any(column.n_missing for column in model.schema.columns):
        output.info("Missing numbers and dates are set to the median, and a feature marks rows with missing values.")
    _warn_of_columns_left_out(output, model.schema.left_out)
    for note in model.schema.notes:
        output.note(note)
    for column in model.schema.columns:
        if getattr(column, "is_ambiguous", False):
            first, second = column.written.date[:2], column.written.date[3:5]
            other = column.written.date.replace(first, "%x").replace(second, first).replace("%x", second)
            read, swapped = (date_in_words(date) for date in (column.written.date, other))
            output.note(f"{column.name}: dates are read as {read}; use --date-format '{other}' if they are {swapped}")
    if n_unknown:
        output.note(f"{n_unknown:,} of {n_rows:,} rows have no {model.target.name!r} and were left out")


def _warn_of_columns_left_out(output: Output, left_out: dict[str, str]) -> None:
    """Print to `output` a warning for each reason why columns are left out, unless the user asked for that."""
    from anchored.tables.schema import IGNORED

    by_reason: dict[str, list[str]] = {}
    for name, why in left_out.items():
        if why != IGNORED:
            by_reason.setdefault(why, []).append(name or "(no name)")
    for why, names in by_reason.items():
        remedy = f"; use --type '{names[0]}=category' to read it" if why.startswith("text") else ""
        if why.startswith("text with numbers"):
            remedy += ", or write numbers and dates as 1234.5 and 2024-01-31"
        output.warning(f"left out ({why}): {', '.join(names)}{remedy}")


def show_scores(output: Output, scores: "Scores", title: str) -> None:
    """Print `scores` to `output`, below `title`, and whether the uncertainty is calibrated."""
    from anchored.tables.scores import calibration, formatted

    output.info(title)
    output.table(["", ""], formatted(scores))
    output.info(f"Calibration: {calibration(scores)}.")


def show_guarantee(output: Output, model: "TableModel") -> None:
    """Print to `output` what `model` guarantees, if anything."""
    guarantee = model.estimator.guarantee_
    if guarantee is None:
        return
    if model.classes is None:
        subject = "intervals"
        what = f"the intervals of the model, extended by {guarantee.margin[0]:.3g} s.d. at both ends"
    else:
        subject, what = "sets of classes", f"all classes with a probability of at least {1 - guarantee.margin[0]:.3g}"
    promise = f"{subject} contain the observation with a probability of at least {guarantee.coverage:g}"
    output.info(f"Guarantee: {promise}, from {guarantee.n_rows:,} held-out rows: {what}.")


def show_novelties(output: Output, novelties: list["Novelty"]) -> None:
    """Print to `output` a note on each unknown value among `novelties`, and one on columns with values out of range."""
    unknown = [novelty for novelty in novelties if novelty.is_unknown]
    outside = [novelty for novelty in novelties if not novelty.is_unknown]
    for novelty in unknown:
        output.note(str(novelty))
    if unknown:
        output.note("such rows are predicted with more uncertainty; with --strict they raise an error")
    if outside:
        listed = ", ".join(f"{novelty.column} ({novelty.n_rows:,})" for novelty in outside)
        output.note(f"values outside the training range, by column and number of rows: {listed}")


def suggest_classification(output: Output, model: "TableModel") -> None:
    """Print a note to `output` if the target of `model` has few different numbers, which may be meant as classes."""
    if model.target.n_distinct <= FEW_VALUES and model.target.task == "regression":
        output.note(
            f"{model.target.name!r} has {model.target.n_distinct} different values, read as numbers; "
            "use --task classification if they are classes"
        )
