"""The commands that assess a model of a table: evaluate, certify and report."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

from typer import Option

from anchored.cli.arguments import ClusterAddress, DataFile, Encoding, ModelFile, Strict
from anchored.cli.console import AsJson, command_output, row_counter
from anchored.cli.messages import show_novelties, show_scores

USED_ROWS_WARNINGS = {  # for the values of `tables.used_rows.RowsUsed`, which is slow to import
    "training": "the model was fitted to these rows, so its errors on them are too small; use other rows, or the "
    "scores that anchored fit printed for held-out rows",
    "guarantee": "the guarantee was computed from these rows, so they do not test it; use other rows",
    "training and guarantee": "the model was fitted to some of these rows, and its guarantee was computed from the "
    "others, so its errors are too small, and these rows do not test the guarantee; use other rows",
}


def evaluate(
    model: ModelFile,
    data: DataFile,
    strict: Strict = False,
    encoding: Encoding = None,
    cluster: ClusterAddress = None,
    as_json: AsJson = False,
) -> None:
    """Score a model on rows whose target is known.

    Shows how large the model's errors are, and whether its uncertainty is
    calibrated. Use rows that the model was not fitted to: on its training rows,
    its errors are too small. Rows without a target are skipped.

    [bold]Example[/bold]
    anchored evaluate houses.anchored sold-since.csv
    """
    with command_output(as_json) as output:
        from anchored.inference.cluster import connected
        from anchored.tables import saved_model, scores
        from anchored.tables.files import open_table
        from anchored.tables.prediction import predict_labelled
        from anchored.tables.used_rows import rows_used

        fitted, table = saved_model.load(model), open_table(data, encoding)
        with connected(cluster), row_counter(not as_json and sys.stderr.isatty(), "predicted") as on_rows:
            y, predictive, novelties = predict_labelled(fitted, table, strict, on_rows)
        scores_of_rows = scores.score(y, predictive, fitted.classes)
        show_novelties(output, novelties)  # values unlike the training data
        show_scores(output, scores_of_rows, f"{fitted.target.name} in {table.source}:")
        covered = None
        if fitted.estimator.guarantee_ is not None:
            covered = scores.empirical_coverage(y, predictive, fitted.estimator.guarantee_, fitted.classes)
            subject = "intervals" if fitted.classes is None else "sets"
            promised = f"{fitted.estimator.guarantee_.coverage:.0%} are guaranteed"
            output.info(f"Guarantee: {covered:.1%} of the observations are in the guaranteed {subject}; {promised}.")
        used = rows_used(fitted, table.read([*fitted.schema.names, fitted.target.name]))
        if used in USED_ROWS_WARNINGS:
            output.warning(USED_ROWS_WARNINGS[used])
        calibration = scores.calibration(scores_of_rows).to_json()
        output.result(
            {
                **scores_of_rows,
                "contains_training_rows": used.has_training,
                "contains_guarantee_rows": used.has_guarantee,
                "calibration": calibration,
                "empirical_coverage_of_guarantee": covered,
                "novelties": [novelty.to_json() for novelty in novelties],
            }
        )


def certify(
    model: ModelFile,
    data: DataFile,
    max_memory_gb: Annotated[
        float,
        Option(min=0.1, help="Memory limit, in GB, for the rows × rows matrices that the exact posterior needs."),
    ] = 2.0,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Compare a model's uncertainty with the exact posterior.

    Computes the exact posterior under the model's own prior, noise and
    architecture. Shows how far the spread of the members is from that of the
    exact posterior, how much of the difference is due to the finite number of
    members, and what would help. DATA must be the file that the model was fitted
    to, with its rows in the same order. Works for regression only.

    [bold]Example[/bold]
    anchored certify houses.anchored houses.csv
    """
    with command_output(as_json) as output:
        from anchored.certification.diagnosis import Finding
        from anchored.tables import certification, saved_model
        from anchored.tables.files import open_table

        fitted = saved_model.load(model)
        table = open_table(data, encoding)
        names = [*fitted.schema.names, fitted.target.name]
        table.require(names, "which the model was fitted to")
        certificate = certification.certify(fitted, table.read(names), max_memory_gb)
        for line in str(certificate).splitlines():
            output.info(line)
        if fitted.estimator.guarantee_ is not None:
            output.note("rows that were held out for the guarantee are left out: the model was not fitted to them")
        if certificate.finding == Finding.NOT_CONVERGED:
            output.note("training ended too early; raise --max-iter of anchored fit")
        output.result(
            {
                "finding": certificate.finding,
                "summary": certificate.summary,
                "distances": dict(certificate.distances),
                "distances_of_exact_draws": {
                    name: dict(span._asdict()) for name, span in certificate.distances_of_exact_draws.items()
                },
                "theory": None if certificate.predicted is None else dict(certificate.predicted),
                "reference": certificate.reference,
                "members": certificate.n_members,
                "rows": certificate.n_rows,
            }
        )


def report(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        Option("--out", "-o", help="HTML file to write. Default: the name of the model with the suffix .html."),
    ] = None,
    encoding: Encoding = None,
    as_json: AsJson = False,
) -> None:
    """Write an HTML report on a model: scores, calibration and permutation importance.

    The report is one HTML file. DATA must contain the target; use rows that the
    model was not fitted to.

    [bold]Example[/bold]
    anchored report houses.anchored sold-since.csv --out houses.html
    """
    with command_output(as_json) as output:
        from anchored.storage import atomic
        from anchored.tables import saved_model
        from anchored.tables.files import open_table
        from anchored.tables.report import report as make_report
        from anchored.tables.writing import check_writable

        out = out or model.with_suffix(".html")
        check_writable(out, [data, model])
        command = shlex.join(["anchored", "report", str(model), str(data), "--out", str(out)])
        result = make_report(saved_model.load(model), model.name, open_table(data, encoding), command)
        atomic.write_text(out, result.page)
        output.info(f"Calibration: {result.calibration}.")
        output.info(f"Report: {out}")
        if result.used in USED_ROWS_WARNINGS:
            output.warning(USED_ROWS_WARNINGS[result.used])
        importance = [column.to_json() for column in result.importance]
        calibration = result.calibration.to_json()
        output.result(
            {"report": str(out), **result.scores, "permutation_importance": importance, "calibration": calibration}
        )
