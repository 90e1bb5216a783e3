"""A page about a model, beside rows whose target is known: is its uncertainty honest, and where does it come from?"""

from collections.abc import Callable
from typing import Any

import numpy as np

from anchored import html_page, plots
from anchored.html_page import Html
from anchored.model.predictive import Predictive
from anchored.plots import as_png
from anchored.storage.text import printable
from anchored.tables import cells, scores
from anchored.tables.cells import Rows
from anchored.tables.columns import Surprise
from anchored.tables.errors import TableError
from anchored.tables.files import Table
from anchored.tables.influence import Influence, influences, uncertainties
from anchored.tables.model import TableModel

N_UNCERTAIN = 12
MOST_POINTS = 500  # in a picture
SURE_SHARES = (1.0, 0.8, 0.5, 0.2)
TONES = {"honest": "good", "sure": "bad", "cautious": "mixed"}


def report(model: TableModel, name: str, table: Table, command: str) -> tuple[Html, dict[str, Any]]:
    """The page, and its numbers."""
    table.require([*model.schema.names, model.target.name], "which the model reads or predicts")
    everything = table.read([*model.schema.names, model.target.name])
    y, present = model.targets(everything)
    if len(y) < 2:
        raise TableError(f"{table.path}: only {len(y)} rows have a {model.target.name!r}; a report needs two or more")
    rows = everything.take(np.flatnonzero(present))
    predictive, surprises = model.predict(rows)
    found = scores.score(y, predictive, model.classes)
    influence = influences(model, rows, y)
    verdict = scores.verdict(found)
    word = next(word for word in TONES if word in verdict)
    badge = html_page.badge(word if word == "honest" else f"too {word}", TONES[word])
    page = html_page.page(
        f"{model.target.name}: a model and its uncertainty",
        html_page.paragraph(badge, f" {_sentence(verdict)}"),
        _scores(model, found),
        _calibration(model, y, predictive),
        _surest(model, y, predictive),
        _uncertain(model, rows, y, predictive, influence),
        _influence(model, influence),
        _columns(model, surprises),
        html_page.section("Make this page again", html_page.code(command), name="command"),
        lead=f"{name}, {model.n_rows:,} rows of training, compared with {len(y):,} rows of {table.path.name}.",
    )
    return page, {**found, "influence": [vars(one) for one in influence], "verdict": verdict}


def _scores(model: TableModel, found: dict[str, float]) -> Html:
    here, at_fit = dict(scores.written(found)), dict(scores.written(model.held_out))
    rows = [[label, value, at_fit.get(label, "")] for label, value in here.items()]
    told = "Beside them the scores of rows that were held out when the model was fitted."
    table = html_page.table(["", "these rows", "held out at the fit"], rows)
    return html_page.section("Scores", html_page.paragraph(told), table, name="scores")


def _calibration(model: TableModel, y: np.ndarray, predictive: Any) -> Html:
    if not isinstance(predictive, Predictive):
        display = _drawn(
            lambda ax: plots.ReliabilityDisplay.from_predictions(
                y, predictive.probabilities, labels=model.classes, ax=ax
            )
        )
        told = "Of rows predicted with a confidence of 80%, 80% should be right: bars should end at the dashed line."
        picture = html_page.picture(display, "accuracy against confidence", told)
        return html_page.section("Calibration", picture, name="calibration")
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
            "model is too sure, above it too cautious.",
        ),
        html_page.picture(
            intervals,
            "predictions with intervals against the truth",
            f"Predictions and their 95% intervals against the truth, {len(some):,} rows.",
        ),
        name="calibration",
    )


def _surest(model: TableModel, y: np.ndarray, predictive: Any) -> Html:
    """Whether it errs less where it is surer, which is what uncertainty is for."""
    order = np.argsort(uncertainties(predictive)[0], kind="stable")
    rows = []
    for share in SURE_SHARES:
        kept = order[: max(2, round(share * len(order)))]
        if isinstance(predictive, Predictive):
            error = scores.significant(float(np.sqrt(np.mean((y[kept] - predictive.mean[kept]) ** 2))))
        else:
            assert model.classes is not None
            right = model.classes[predictive.probabilities[kept].argmax(axis=1)] == y[kept]
            error = f"{np.mean(right):.1%}"
        rows.append([f"{share:.0%}", f"{len(kept):,}", error])
    what = "error (RMSE)" if isinstance(predictive, Predictive) else "accuracy"
    told = "A model that knows what it does not know errs less where it is surer."
    table = html_page.table(["the surest", "rows", what], rows)
    return html_page.section("Where it is sure", html_page.paragraph(told), table, name="surest")


def _uncertain(model: TableModel, rows: Rows, y: np.ndarray, predictive: Any, influence: list[Influence]) -> Html:
    total, epistemic = uncertainties(predictive)
    chosen = np.argsort(-total, kind="stable")[:N_UNCERTAIN]
    shown = [one.column for one in influence[:4]]
    if isinstance(predictive, Predictive):
        ends = zip(*(_digits(end[chosen]) for end in predictive.interval(scores.COVERAGE)), strict=True)
        header = ["row", model.target.name, "mean", "95% interval", "s.d.", "epistemic s.d."]
        predicted = [_digits(y[chosen]), _digits(predictive.mean[chosen]), [f"{low} to {high}" for low, high in ends]]
    else:
        assert model.classes is not None
        p = predictive.probabilities[chosen]
        header = ["row", model.target.name, "predicted", "probability", "entropy", "epistemic entropy"]
        best = model.classes[p.argmax(axis=1)]
        predicted = [list(map(str, y[chosen])), list(map(str, best)), _digits(p.max(axis=1))]
    cases = rows.take(chosen)
    given = [[cell or "missing" for cell in cells.text(cases.columns[name]).to_pylist()] for name in shown]
    columns = [
        [str(rows.number(index)) for index in chosen],
        *predicted,
        _digits(total[chosen]),
        _digits(epistemic[chosen]),
        *given,
    ]
    body = list(zip(*columns, strict=True))
    told = "The epistemic part is the members' disagreement: more rows like these would shrink it. The rest is noise."
    table = html_page.table([*header, *shown], body)
    return html_page.section("The most uncertain rows", html_page.paragraph(told), table, name="uncertain")


def _influence(model: TableModel, influence: list[Influence]) -> Html:
    is_number = model.target.task == "regression"
    unit = "s.d." if is_number else "entropy"

    def draw(ax: Any) -> None:
        most = influence[:20][::-1]
        places = np.arange(len(most))
        ax.barh(places + 0.2, [one.uncertainty for one in most], 0.4, color=plots.LINE, label=f"{unit}, all of it")
        ax.barh(
            places - 0.2, [one.epistemic for one in most], 0.4, color=plots.BAND_SHADES[0], label=f"epistemic {unit}"
        )
        ax.set_yticks(places, [printable(one.column) for one in most], parse_math=False)  # a name may hold $
        ax.set_xlabel(f"change of a row's {unit}")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)

    picture = _drawn(draw, (5.4, 1.0 + 0.36 * min(20, len(influence))))
    rows = [[one.column, *map(scores.significant, (one.uncertainty, one.epistemic, one.error))] for one in influence]
    error = "RMSE rises by" if is_number else "log loss rises by"
    return html_page.section(
        "What its uncertainty depends on",
        html_page.paragraph(
            "Each column is shuffled among the rows, so that it tells nothing of its own row any more. By how much a "
            "row's uncertainty then changes (root mean square) is the column's influence on it; by how much the error "
            "rises, its influence on predictions."
        ),
        html_page.picture(picture, "influence of each column on the uncertainty"),
        html_page.table(["column", f"{unit} moves by", f"epistemic {unit} by", error], rows),
        name="influence",
    )


def _columns(model: TableModel, surprises: list[Surprise]) -> Html:
    rows = [[c.name, c.kind, f"{c.n_missing:,}" if c.n_missing else "", str(c)] for c in model.schema.columns]
    rows += [[name or "(no name)", "left out", "", why] for name, why in model.schema.left_out.items()]
    table = html_page.table(["column", "read as", "missing at the fit", "at the fit"], rows)
    unlike = [html_page.paragraph("In these rows:"), html_page.items(map(str, surprises))] if surprises else []
    return html_page.section("What the model reads", table, *unlike, name="columns")


def _drawn(draw: Callable[[Any], Any], size: tuple[float, float] = (5.0, 4.0)) -> bytes:
    """A picture of its own, whatever the machine shows pictures with."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("reports need matplotlib: pip install 'anchored[plot]'") from error
    figure = Figure(figsize=size, layout="constrained")
    draw(figure.subplots())
    return as_png(figure, dpi=150)


def _digits(values: np.ndarray) -> list[str]:
    return [scores.significant(float(value)) for value in values]


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."
