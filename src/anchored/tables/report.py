"""An HTML page about a model, with rows whose target is known: is its uncertainty calibrated, and what drives it?"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from anchored import html_page, plots
from anchored.errors import TableError
from anchored.html_page import Html
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.plots import as_png
from anchored.storage.text import printable
from anchored.tables import scores, values
from anchored.tables.files import Table
from anchored.tables.model import TableModel
from anchored.tables.novelties import Novelty
from anchored.tables.permutation_importance import Importance, permutation_importance, uncertainties
from anchored.tables.rows import RowBatch
from anchored.tables.scores import Calibration, CalibrationFinding, Scores
from anchored.tables.target import Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

N_UNCERTAIN = 12
MOST_POINTS = 500  # in a picture
MOST_BARS = 20
N_SHOWN = 4  # columns beside an uncertain row
CONFIDENT_SHARES = (1.0, 0.8, 0.5, 0.2)
TONES = {
    CalibrationFinding.CALIBRATED: "good",
    CalibrationFinding.OVERCONFIDENT: "bad",
    CalibrationFinding.UNDERCONFIDENT: "mixed",
}


@dataclass(frozen=True)
class Report:
    """A page about a model, and the numbers on it.

    Attributes
    ----------
    page : the HTML
    scores : of the rows whose target is known
    calibration : what they say about the uncertainty
    importance : of each column, the largest first
    """

    page: Html
    scores: Scores
    calibration: Calibration
    importance: list[Importance]


@dataclass(frozen=True)
class _Rows:
    """The rows whose target is known: what they hold, their targets, and what the model predicts for them."""

    batch: RowBatch
    y: np.ndarray
    predictive: Predictive | CategoricalPredictive
    novelties: list[Novelty]


def report(model: TableModel, name: str, table: Table, command: str) -> Report:
    """The report of `model`, called `name`, for the rows of `table` whose target is known.

    `command` is shown at the end of the page, as what makes it again.
    """
    rows = _read(model, table)
    found = scores.score(rows.y, rows.predictive, model.classes)
    calibration = scores.calibration(found)
    importance = permutation_importance(model, rows.batch, rows.y)
    badge = html_page.badge(str(calibration.finding), TONES[calibration.finding])
    page = html_page.page(
        f"{model.target.name}: a model and its uncertainty",
        html_page.paragraph(badge, f" {_sentence(str(calibration))}"),
        _scores(model, found),
        _calibration(model, rows),
        _most_confident(model, rows),
        _most_uncertain(model, rows, importance),
        _importance(model, importance),
        _columns(model, rows.novelties),
        html_page.section("Make this page again", html_page.code(command), name="command"),
        lead=f"{name}, fitted to {model.n_rows:,} rows, compared with {len(rows.y):,} rows of {table.path.name}.",
    )
    return Report(page, found, calibration, importance)


def _read(model: TableModel, table: Table) -> _Rows:
    names = [*model.schema.names, model.target.name]
    table.require(names, "which the model reads or predicts")
    everything = table.read(names)
    y, present = model.targets(everything)
    if len(y) < 2:
        problem = f"only {len(y)} rows have a {model.target.name!r}; a report needs two or more"
        raise TableError(str(table.path), problem)
    batch = everything.take(np.flatnonzero(present))
    return _Rows(batch, y, *model.predict(batch))


def _scores(model: TableModel, found: Scores) -> Html:
    here, at_fit = dict(scores.written(found)), dict(scores.written(model.held_out))
    rows = [[label, value, at_fit.get(label, "")] for label, value in here.items()]
    text = "Beside them the scores of rows that were held out when the model was fitted."
    table = html_page.table(["", "these rows", "held out at the fit"], rows)
    return html_page.section("Scores", html_page.paragraph(text), table, name="scores")


def _calibration(model: TableModel, rows: _Rows) -> Html:
    if isinstance(rows.predictive, Predictive):
        return _calibration_of_numbers(rows.y, rows.predictive)
    probabilities = rows.predictive.probabilities
    drawn = _drawn(
        lambda ax: plots.ReliabilityDisplay.from_predictions(rows.y, probabilities, labels=model.classes, ax=ax)
    )
    text = "Of rows predicted with a confidence of 80%, 80% should be right: bars should end at the dashed line."
    picture = html_page.picture(drawn, "accuracy against confidence", text)
    return html_page.section("Calibration", picture, name="calibration")


def _calibration_of_numbers(y: np.ndarray, predictive: Predictive) -> Html:
    mean, std = predictive.mean, predictive.std
    curve = _drawn(lambda ax: plots.CalibrationDisplay.from_predictions(y, mean, std, ax=ax))
    some = np.linspace(0, len(y) - 1, min(len(y), MOST_POINTS)).astype(int)
    intervals = _drawn(
        lambda ax: plots.PredictionDisplay.from_predictions(y[some], mean[some], std[some], ax=ax), (6.0, 4.2)
    )
    return html_page.section(
        "Calibration and intervals",
        html_page.picture(
            curve,
            "observed against expected coverage of intervals",
            "Intervals that claim to hold a share of the rows, and the share they hold. Below the dashed line the "
            "model is overconfident, above it underconfident.",
        ),
        html_page.picture(
            intervals,
            "predictions with intervals against the truth",
            f"Predictions and their 95% intervals against the truth, {len(some):,} rows.",
        ),
        name="calibration",
    )


def _most_confident(model: TableModel, rows: _Rows) -> Html:
    """Whether the error is smaller where the uncertainty is, which is what uncertainty is for."""
    order = np.argsort(uncertainties(rows.predictive)[0], kind="stable")
    lines = []
    for share in CONFIDENT_SHARES:
        kept = order[: max(2, round(share * len(order)))]
        lines.append([f"{share:.0%}", f"{len(kept):,}", _error(model, rows, kept)])
    error = "error (RMSE)" if isinstance(rows.predictive, Predictive) else "accuracy"
    text = "If the uncertainty is informative, errors are smaller where the model is more confident."
    table = html_page.table(["most confident", "rows", error], lines)
    return html_page.section("Error and confidence", html_page.paragraph(text), table, name="confident")


def _error(model: TableModel, rows: _Rows, kept: np.ndarray) -> str:
    """The error of the rows at these positions, as text."""
    y = rows.y[kept]
    if isinstance(rows.predictive, Predictive):
        return scores.significant(float(np.sqrt(np.mean((y - rows.predictive.mean[kept]) ** 2))))
    assert model.classes is not None
    return f"{np.mean(model.classes[rows.predictive.probabilities[kept].argmax(axis=1)] == y):.1%}"


def _most_uncertain(model: TableModel, rows: _Rows, importance: list[Importance]) -> Html:
    total, epistemic = uncertainties(rows.predictive)
    chosen = np.argsort(-total, kind="stable")[:N_UNCERTAIN]
    header, predicted = _predicted(model, rows, chosen)
    shown = [one.column for one in importance[:N_SHOWN]]
    selected = rows.batch.take(chosen)
    given = [[value or "missing" for value in values.text(selected.columns[name]).to_pylist()] for name in shown]
    columns = [
        [str(rows.batch.row_number(index)) for index in chosen],
        *predicted,
        _digits(total[chosen]),
        _digits(epistemic[chosen]),
        *given,
    ]
    text = "The epistemic part is the members' disagreement: more rows like these would shrink it. The rest is noise."
    table = html_page.table([*header, *shown], list(zip(*columns, strict=True)))
    return html_page.section("The most uncertain rows", html_page.paragraph(text), table, name="uncertain")


def _predicted(model: TableModel, rows: _Rows, chosen: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """The header of the table of uncertain rows, and its columns from the target to the prediction."""
    y, predictive = rows.y[chosen], rows.predictive
    if isinstance(predictive, Predictive):
        ends = zip(*(_digits(end[chosen]) for end in predictive.interval(scores.COVERAGE)), strict=True)
        header = ["row", model.target.name, "mean", "95% interval", "s.d.", "epistemic s.d."]
        return header, [_digits(y), _digits(predictive.mean[chosen]), [f"{low} to {high}" for low, high in ends]]
    assert model.classes is not None
    p = predictive.probabilities[chosen]
    header = ["row", model.target.name, "predicted", "probability", "entropy", "epistemic entropy"]
    labels = model.classes[p.argmax(axis=1)]
    return header, [list(map(str, y)), list(map(str, labels)), _digits(p.max(axis=1))]


def _importance(model: TableModel, importance: list[Importance]) -> Html:
    is_number = model.target.task == Task.REGRESSION
    unit = "s.d." if is_number else "entropy"
    size = (5.4, 1.0 + 0.36 * min(MOST_BARS, len(importance)))
    picture = _drawn(lambda ax: _draw_importance(ax, importance, unit), size)
    rows = [[one.column, *map(scores.significant, (one.uncertainty, one.epistemic, one.error))] for one in importance]
    error = "RMSE rises by" if is_number else "log loss rises by"
    return html_page.section(
        "Permutation importance",
        html_page.paragraph(
            "Each column is shuffled among the rows, so that it no longer says anything about its own row. The table "
            f"shows by how much a row's {unit} then changes (root mean square), and by how much the error rises."
        ),
        html_page.picture(picture, "permutation importance of each column for the uncertainty"),
        html_page.table(["column", f"{unit} changes by", f"epistemic {unit} by", error], rows),
        name="importance",
    )


def _draw_importance(ax: "Axes", importance: list[Importance], unit: str) -> None:
    largest = importance[:MOST_BARS][::-1]
    positions = np.arange(len(largest))
    ax.barh(positions + 0.2, [one.uncertainty for one in largest], 0.4, color=plots.LINE, label=f"total {unit}")
    epistemic = [one.epistemic for one in largest]
    ax.barh(positions - 0.2, epistemic, 0.4, color=plots.BAND_SHADES[0], label=f"epistemic {unit}")
    ax.set_yticks(positions, [printable(one.column) for one in largest], parse_math=False)  # a name may hold $
    ax.set_xlabel(f"change of a row's {unit}")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)


def _columns(model: TableModel, novelties: list[Novelty]) -> Html:
    rows = [[c.name, c.kind, f"{c.n_missing:,}" if c.n_missing else "", str(c)] for c in model.schema.columns]
    rows += [[name or "(no name)", "left out", "", why] for name, why in model.schema.left_out.items()]
    table = html_page.table(["column", "read as", "missing at the fit", "at the fit"], rows)
    unlike = [html_page.paragraph("In these rows:"), html_page.items(map(str, novelties))] if novelties else []
    return html_page.section("What the model reads", table, *unlike, name="columns")


def _drawn(draw: Callable[["Axes"], object], size: tuple[float, float] = (5.0, 4.0)) -> bytes:
    """What `draw` draws on new axes of this size in inches, as PNG; no window is opened, whatever the backend."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("reports need matplotlib: pip install 'anchored[plot]'") from error
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    return as_png(figure, dpi=150)


def _digits(numbers: np.ndarray) -> list[str]:
    return [scores.significant(float(number)) for number in numbers]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
