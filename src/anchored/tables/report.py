"""An HTML report on a model: its scores and calibration on labelled rows, and what its uncertainty depends on."""

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import confusion_matrix

from anchored import html_page, metrics, plots
from anchored.errors import TableError
from anchored.html_page import Html
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.tables import scores, values
from anchored.tables.files import Table
from anchored.tables.model import TableModel
from anchored.tables.novelties import Novelty
from anchored.tables.permutation_importance import Importance, permutation_importance, uncertainties
from anchored.tables.report_columns import N_SHOWN, drawing, effects_section, importance_section
from anchored.tables.rows import RowBatch
from anchored.tables.scores import Calibration, CalibrationFinding, Scores
from anchored.tables.used_rows import RowsUsed, rows_used

N_UNCERTAIN = 12  # rows in the table of the most uncertain rows
MAX_POINTS = 500  # rows shown in the picture of intervals
MAX_CANDIDATES = 10  # largest number of compared settings that are shown
MAX_CLASSES = 20  # shown in the confusion matrix
CONFIDENT_SHARES = (1.0, 0.8, 0.5, 0.2)  # fractions of the rows, the most confident first, whose error is shown
TONES = {  # colour of the badge for each finding, one of html_page.TONES
    CalibrationFinding.CALIBRATED: "good",
    CalibrationFinding.OVERCONFIDENT: "bad",
    CalibrationFinding.UNDERCONFIDENT: "mixed",
}

REGRESSION_SCORES = (
    "The CRPS (continuous ranked probability score) is the mean absolute error, generalised to distributions; like the "
    "negative log-likelihood, it is lower for better predictions. The calibration error is the mean distance of the "
    "curve in the next picture from its diagonal."
)
CLASSIFICATION_SCORES = (
    "The log loss, in nats per row, and the Brier score are lower for better probabilities. The calibration error is "
    "the mean difference of confidence and accuracy."
)
USED_ROWS_SENTENCES = {  # what the report says about rows that the model has used
    RowsUsed.NOTHING: "",
    RowsUsed.TRAINING: " The model was fitted to the same rows, so its errors on them are too small.",
    RowsUsed.GUARANTEE: " The guarantee was computed from the same rows, so they do not test it.",
    RowsUsed.BOTH: " The model was fitted to some of these rows, and its guarantee was computed from the others, so "
    "its errors are too small, and these rows do not test the guarantee.",
}


@dataclass(frozen=True)
class Report:
    """A report on a model, and the numbers in it.

    Attributes
    ----------
    page : Html
        The page.
    scores : Scores
        Scores on the labelled rows.
    calibration : Calibration
        Whether the uncertainty is calibrated on them.
    importance : list of Importance
        Permutation importance of each column, the largest effect on the uncertainty first.
    used : RowsUsed
        What the model has used these rows for.
    """

    page: Html
    scores: Scores
    calibration: Calibration
    importance: list[Importance]
    used: RowsUsed


@dataclass(frozen=True)
class _Evaluation:
    """The labelled rows of a table, their targets and predictive distribution, and values unlike the training data."""

    batch: RowBatch
    y: np.ndarray
    predictive: Predictive | CategoricalPredictive
    novelties: list[Novelty]


def report(model: TableModel, name: str, table: Table, command: str) -> Report:
    """Report on a model, evaluated on the rows of a table whose target is not missing.

    Parameters
    ----------
    model : TableModel
        The fitted model.
    name : str
        What the report calls the model.
    table : Table
        The table.
    command : str
        The command that reproduces the report, shown at its end.
    """
    evaluation = _evaluate(model, table)
    scores_of_rows = scores.score(evaluation.y, evaluation.predictive, model.classes)
    calibration = scores.calibration(scores_of_rows)
    importance = permutation_importance(model, evaluation.batch, evaluation.y)
    used = rows_used(model, evaluation.batch)
    lead = f"{name}, fitted to {model.n_rows:,} rows and evaluated on {len(evaluation.y):,} rows of {table.path.name}."
    lead += USED_ROWS_SENTENCES[used] + " Click on a picture to enlarge it."
    badge = html_page.badge(str(calibration.finding), TONES[calibration.finding])
    page = html_page.page(
        f"{model.target.name}: a model and its uncertainty",
        html_page.paragraph(badge, f" {_as_sentence(str(calibration))}"),
        _scores(model, scores_of_rows),
        _calibration(model, evaluation),
        _most_confident(model, evaluation),
        _most_uncertain(model, evaluation, importance),
        importance_section(model, importance),
        effects_section(model, evaluation.batch, importance),
        _choices(model),
        _columns(model, evaluation.novelties),
        html_page.section("How to reproduce this report", html_page.code(command), name="command"),
        lead=lead,
    )
    return Report(page, scores_of_rows, calibration, importance, used)


def _evaluate(model: TableModel, table: Table) -> _Evaluation:
    """Read the labelled rows of the table and predict them."""
    names = [*model.schema.names, model.target.name]
    table.require(names, "which the model reads or predicts")
    all_rows = table.read(names)
    y, has_target = model.targets(all_rows)
    if len(y) < 2:
        problem = f"only {len(y)} rows have a {model.target.name!r}; a report needs at least two"
        raise TableError(table.source, problem)
    batch = all_rows.take(np.flatnonzero(has_target))
    return _Evaluation(batch, y, *model.predict(batch))


def _scores(model: TableModel, scores_of_rows: Scores) -> Html:
    """The section with the scores on these rows, and those of the first fit on the rows held out from it."""
    held_out = dict(scores.formatted(model.held_out or {}))
    rows = [[label, value, held_out.get(label, "")] for label, value in scores.formatted(scores_of_rows)]
    text = "For comparison, the last column has the scores of the first fit on rows that were held out from training. "
    text += REGRESSION_SCORES if model.classes is None else CLASSIFICATION_SCORES
    table = html_page.table(["", "these rows", "held-out rows"], rows)
    return html_page.section("Scores", html_page.paragraph(text), table, name="scores")


def _choices(model: TableModel) -> Html:
    """The section with the settings that were compared by cross-validation, the chosen one first."""
    candidates = model.estimator.candidates_[:MAX_CANDIDATES]
    if not candidates:  # all settings were given, or chosen by the marginal likelihood
        return Html("")
    rows = [
        [c.network_in_words, f"{c.score:.3f}", f"{c.prior_scale}", f"{c.noise:g}", f"{c.n_epochs:,}"]
        for c in candidates
    ]
    noise, meaning = ("noise", "The noise is its variance, relative to that of the target.")
    if model.classes is not None:
        noise, meaning = ("temperature", "The higher the temperature, the more the prior counts.")
    text = (
        "Settings were compared by how well they predict held-out rows; the first one was used. A score is a negative "
        "log-likelihood in nats per row, up to a constant: lower is better. Only scores with the same number of epochs "
        "are comparable. The larger the prior scale, the more the first layer's parameters may differ from "
        f"zero. {meaning}"
    )
    table = html_page.table(["network", "score", "prior scale", noise, "epochs"], rows)
    return html_page.section("What was chosen", html_page.paragraph(text), table, name="choices")


def _calibration(model: TableModel, evaluation: _Evaluation) -> Html:
    """The section with a picture of the calibration."""
    if isinstance(evaluation.predictive, Predictive):
        return _regression_calibration(evaluation.y, evaluation.predictive, _guarantee(model, evaluation))
    probabilities = evaluation.predictive.probabilities
    picture = drawing(
        lambda ax: plots.ReliabilityDisplay.from_predictions(evaluation.y, probabilities, labels=model.classes, ax=ax),
        "accuracy against confidence",
        "Predictions with a confidence of 80% should be right in 80% of the rows: bars should end at the dashed line.",
    )
    parts = (_guarantee(model, evaluation), picture, _confusion(model, evaluation))
    return html_page.section("Calibration", *parts, name="calibration")


def _guarantee(model: TableModel, evaluation: _Evaluation) -> Html:
    """A sentence about the guaranteed coverage; empty if the model guarantees none."""
    guarantee = model.estimator.guarantee_
    if guarantee is None:
        return Html("")
    covered = scores.empirical_coverage(evaluation.y, evaluation.predictive, guarantee, model.classes)
    subject = "intervals" if model.classes is None else "sets of classes"
    promise = (
        f"The guaranteed {subject} contain a new observation with a probability of at least {guarantee.coverage:g}"
    )
    return html_page.paragraph(f"{promise}; here they contain {covered:.1%} of the observations.")


def _confusion(model: TableModel, evaluation: _Evaluation) -> Html:
    """The table of how many rows of each class are predicted as each class; empty if there are too many classes."""
    assert model.classes is not None and isinstance(evaluation.predictive, CategoricalPredictive)
    if len(model.classes) > MAX_CLASSES:
        return Html("")
    predicted = model.classes[evaluation.predictive.probabilities.argmax(axis=1)]
    counts = confusion_matrix(evaluation.y, predicted, labels=model.classes)
    lines = [[str(label), *map("{:,}".format, line)] for label, line in zip(model.classes, counts, strict=True)]
    header = [f"{model.target.name} (rows), predicted (columns)", *map(str, model.classes)]
    return html_page.table(header, lines, "Confusion matrix: number of rows by true class and predicted class.")


def _regression_calibration(y: np.ndarray, predictive: Predictive, guarantee: Html) -> Html:
    """The section with pictures of the coverage of intervals and of predictions against targets.

    `guarantee` is the sentence about guaranteed coverage.
    """
    normal_scores = metrics.normal_scores(y, predictive)
    lower, upper = predictive.interval(scores.COVERAGE)
    shown = np.linspace(0, len(y) - 1, min(len(y), MAX_POINTS)).astype(int)
    display = plots.PredictionDisplay(y[shown], predictive.mean[shown], lower[shown], upper[shown])
    covered = metrics.coverage(y[shown], lower[shown], upper[shown])
    curve = drawing(
        lambda ax: plots.CalibrationDisplay.from_predictions(normal_scores, 0.0, 1.0, ax=ax),
        "observed against expected coverage of intervals",
        "The share of the rows inside intervals, against the probability of the intervals. Where the line is below "
        "the dashed line, the model is overconfident; where it is above, the model is underconfident.",
    )
    predictions = drawing(
        lambda ax: display.plot(ax).ax_.set_title(""),  # the caption says it in full
        "predictions with intervals against targets",
        f"Predictions with their 95% intervals against the targets, {len(shown):,} rows. The intervals contain "
        f"{covered:.0%} of the targets.",
    )
    pictures = html_page.pictures([curve, predictions])
    return html_page.section("Calibration and intervals", guarantee, pictures, name="calibration")


def _most_confident(model: TableModel, evaluation: _Evaluation) -> Html:
    """The section with the RMSE, or the accuracy, of the most confident predictions, which should be the best."""
    order = np.argsort(uncertainties(evaluation.predictive)[0], kind="stable")
    lines = []
    for share in CONFIDENT_SHARES:
        kept = order[: max(2, round(share * len(order)))]
        lines.append([f"{share:.0%}", f"{len(kept):,}", _rmse_or_accuracy(model, evaluation, kept)])
    is_regression = isinstance(evaluation.predictive, Predictive)
    score, uncertainty = ("RMSE", "standard deviation") if is_regression else ("accuracy", "entropy")
    text = (
        f"If the uncertainty is informative, errors are smaller where the model is more confident. Each line has the "
        f"{score} of a share of the rows: those with the smallest {uncertainty}."
    )
    table = html_page.table(["most confident", "rows", score], lines)
    return html_page.section("Error and confidence", html_page.paragraph(text), table, name="confident")


def _rmse_or_accuracy(model: TableModel, evaluation: _Evaluation, kept: np.ndarray) -> str:
    """Return the RMSE or the accuracy of the rows at the positions `kept`, as text."""
    y = evaluation.y[kept]
    if isinstance(evaluation.predictive, Predictive):
        return scores.format_number(float(np.sqrt(np.mean((y - evaluation.predictive.mean[kept]) ** 2))))
    assert model.classes is not None
    return f"{np.mean(model.classes[evaluation.predictive.probabilities[kept].argmax(axis=1)] == y):.1%}"


def _most_uncertain(model: TableModel, evaluation: _Evaluation, importance: list[Importance]) -> Html:
    """The section with the most uncertain rows, and their values of the most important columns."""
    total, epistemic = uncertainties(evaluation.predictive)
    chosen = np.argsort(-total, kind="stable")[:N_UNCERTAIN]
    header, predicted = _predicted(model, evaluation, chosen)
    shown = [column.column for column in importance[:N_SHOWN]]
    selected = evaluation.batch.take(chosen)
    shown_values = [[value or "missing" for value in values.text(selected.columns[name]).to_pylist()] for name in shown]
    columns = [
        [str(evaluation.batch.row_number(index)) for index in chosen],
        *predicted,
        _format_all(total[chosen]),
        _format_all(epistemic[chosen]),
        *shown_values,
    ]
    text = "The epistemic part is the disagreement between members, which more rows like these would reduce."
    table = html_page.table([*header, *shown], list(zip(*columns, strict=True)))
    return html_page.section("The most uncertain rows", html_page.paragraph(text), table, name="uncertain")


def _predicted(model: TableModel, evaluation: _Evaluation, chosen: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """Return the header of the table of uncertain rows, and the columns for the target and the prediction."""
    y, predictive = evaluation.y[chosen], evaluation.predictive
    if isinstance(predictive, Predictive):
        ends = zip(*(_format_all(end[chosen]) for end in predictive.interval(scores.COVERAGE)), strict=True)
        header = ["row", model.target.name, "mean", "95% interval", "s.d.", "epistemic s.d."]
        intervals = [f"{low} to {high}" for low, high in ends]
        return header, [_format_all(y), _format_all(predictive.mean[chosen]), intervals]
    assert model.classes is not None
    p = predictive.probabilities[chosen]
    header = ["row", model.target.name, "predicted", "probability", "entropy", "epistemic entropy"]
    labels = model.classes[p.argmax(axis=1)]
    return header, [list(map(str, y)), list(map(str, labels)), _format_all(p.max(axis=1))]


def _columns(model: TableModel, novelties: list[Novelty]) -> Html:
    """The section with the kind of each column, and values unlike the training data."""
    rows = [[c.name, c.kind, f"{c.n_missing:,}", str(c)] for c in model.schema.columns]
    rows += [[name or "(no name)", "left out", "–", why] for name, why in model.schema.left_out.items()]
    table = html_page.table(["column", "read as", "missing", "values in training"], rows)
    if not novelties:
        return html_page.section("Columns", table, name="columns")
    title = html_page.paragraph("These rows have values that are unlike the training data:")
    return html_page.section("Columns", table, title, html_page.items(map(str, novelties)), name="columns")


def _format_all(numbers: np.ndarray) -> list[str]:
    """Return each number with four significant digits."""
    return [scores.format_number(float(number)) for number in numbers]


def _as_sentence(text: str) -> str:
    """Return `text` with a capital and a full stop."""
    return text[0].upper() + text[1:] + "."
