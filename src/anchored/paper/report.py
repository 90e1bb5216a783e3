"""The report of a reproduction: one HTML page, made only from stored results."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from anchored import html_page
from anchored.html_page import Html
from anchored.paper.catalogue import needed
from anchored.paper.errata import ERRATA
from anchored.paper.findings import N_ERRORS, WORDS, Claim, Figure, Table, Verdict
from anchored.paper.machine import describe
from anchored.paper.reproduction import Result, stored
from anchored.storage import atomic

Shown = tuple[Figure, Result]  # a figure, and the result that it belongs to
TONES = {Verdict.HOLDS: "good", Verdict.CORRECTED: "mixed", Verdict.UNDECIDED: "plain", Verdict.FAILS: "bad"}
MEANINGS = {  # of the verdicts
    Verdict.HOLDS: "our runs agree with the claim",
    Verdict.CORRECTED: "the claim is wrong as printed in the paper, and right in the corrected form",
    Verdict.UNDECIDED: f"the measured effect is within {N_ERRORS} standard errors of the threshold",
    Verdict.FAILS: "our runs contradict the claim",
}
PAPER = "Bayesian Inference with Anchored Ensembles of Neural Networks (Pearce et al. 2018)"


def write(wanted: Sequence[str], folder: Path, quick: bool = False, seed: int = 0) -> Path:
    """Write index.html into `folder`, from the results stored there, and return its path.

    Parameters
    ----------
    wanted
        Names of the figures to show.
    folder
        Folder of the report.
    quick, seed
        Which results to use: those of the quick or the full configuration, and of which random seed.
    """
    results = [stored(experiment, folder, quick, seed) for experiment in needed(wanted)]
    path = folder / "index.html"
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, page([result for result in results if result], wanted, quick))
    return path


def page(results: Sequence[Result], wanted: Sequence[str], quick: bool) -> Html:
    """Return the page of these results as HTML.

    Parameters
    ----------
    results
        Results of experiments, failed ones included.
    wanted
        Names of the figures to show. Figures without an up-to-date result, and failed experiments, are only listed.
    quick
        Whether to mark the page as a quick run.
    """
    shown = {f.name: (f, result) for result in results for f in result.figures if f.name in wanted}
    failed = [result for result in results if result.error]
    ordered = [shown[name] for name in wanted if name in shown]
    of_paper, ours = ([pair for pair in ordered if pair[0].ours is is_ours] for is_ours in (False, True))
    not_run = [name for e in needed(wanted) if e.name not in {r.experiment for r in results} for name in e.figures]
    lead = (
        f"The figures of “{PAPER}”, reproduced, and some figures of our own. For each figure, the page says what the "
        "paper claims, in our words, what we measured, and whether the two agree. Click on a picture to enlarge it."
    )
    quick_note = html_page.paragraph(
        html_page.badge("quick run", "mixed"),
        " This run is too small and short to say anything about the paper; it only checks that everything works. Leave "
        "out --quick for a full run.",
    )
    noted: dict[str, str] = {}
    return html_page.page(
        "The paper, reproduced",
        quick_note if quick else "",
        _conclusions([figure for figure, _ in of_paper]) if of_paper else "",
        _summary(results, of_paper, ours, [name for name in not_run if name in wanted]),
        _errata(set(shown)),
        _failures(failed) if failed else "",
        *(_figure(figure, result, noted) for figure, result in (*of_paper, *ours)),
        lead=lead,
    )


def _conclusions(figures: list[Figure]) -> Html:
    """Return the section that counts the verdicts on all claims about `figures`, and lists the main claims."""
    counts = {verdict: sum(c.verdict is verdict for f in figures for c in f.claims) for verdict in WORDS}
    main = [(figure, claim) for figure in figures for claim in figure.claims if claim.is_main]
    listed = [
        html_page.join(_badge(claim), " ", html_page.link(f"#{figure.name}", figure.title), ": ", typeset(claim.text))
        for verdict in WORDS
        for figure, claim in main
        if claim.verdict is verdict
    ]
    return html_page.section(
        "Conclusions",
        html_page.paragraph(_in_words(counts), " The main claims:" if listed else ""),
        html_page.items(listed) if listed else "",
        name="conclusions",
    )


def _in_words(counts: dict[Verdict, int]) -> str:
    """Return a sentence with the number of claims of each verdict that occurs."""
    forms = {  # one claim, several claims
        Verdict.HOLDS: ("holds", "hold"),
        Verdict.CORRECTED: ("holds in a corrected form", "hold in a corrected form"),
        Verdict.FAILS: ("does not hold", "do not hold"),
        Verdict.UNDECIDED: (
            "is undecided, because there are too few runs",
            "are undecided, because there are too few runs",
        ),
    }
    parts = [f"{counts[verdict]} {form[counts[verdict] > 1]}" for verdict, form in forms.items() if counts[verdict]]
    if not parts:
        return "The paper makes no claim about these figures."
    total = sum(counts.values())
    listed = ", ".join(parts[:-1]) + (" and " if len(parts) > 1 else "") + parts[-1]
    return f"Of {total} {'claim' if total == 1 else 'claims'} of the paper, {listed}."


def _summary(results: Sequence[Result], of_paper: list[Shown], ours: list[Shown], not_run: Sequence[str]) -> Html:
    """Return the section with the number of claims with each verdict, by figure, and the figures `not_run` yet."""
    rows: list[tuple[str, ...]] = []
    listed: set[str] = set()  # experiments whose seconds are already in the table
    for label, group in (("Total, figures of the paper", of_paper), ("Total, our own figures", ours)):
        for figure, result in group:
            counts = (_count([figure], verdict) for verdict in WORDS)
            seconds = "" if result.experiment in listed else _seconds(result)
            rows.append((html_page.link(f"#{figure.name}", figure.title), *counts, seconds))
            listed.add(result.experiment)
        if group:
            totals = (_count([figure for figure, _ in group], verdict) for verdict in WORDS)
            rows.append((html_page.element("strong", label), *totals, ""))
    for result in results:
        if result.error:
            link = html_page.link("#failures", f"{result.experiment}: failed")
            rows.append((link, *[""] * len(WORDS), _seconds(result)))
    rows += [(f"{name}: no up-to-date result", *[""] * (len(WORDS) + 1)) for name in not_run]
    machines: dict[str, float] = {}
    for result in results:
        name = describe(result.machine)
        machines[name] = machines.get(name, 0) + result.seconds
    return html_page.section(
        "Summary",
        html_page.items(
            html_page.join(html_page.badge(word, TONES[verdict]), f" {MEANINGS[verdict]}")
            for verdict, word in WORDS.items()
        ),
        html_page.paragraph(
            "The number after ± is one standard error: over the runs or, if there is one run, over its members or "
            "draws. The notes below a figure say how each claim is tested with numbers."
        ),
        html_page.table(("figure", *WORDS.values(), "seconds"), rows, "Claims, by figure"),
        html_page.paragraph("The seconds of an experiment with several figures are listed with its first figure."),
        *(
            html_page.paragraph(html_page.time(f"{seconds:,.0f}"), f" seconds in total, on this machine: {machine}.")
            for machine, seconds in machines.items()
        ),
        name="summary",
    )


def _count(figures: list[Figure], verdict: Verdict) -> str:
    """Return the number of claims with this verdict, as text; fainter if it depends on a measured time."""
    claims = [claim for figure in figures for claim in figure.claims]
    n_claims = sum(claim.verdict is verdict for claim in claims)
    text = str(n_claims) if n_claims else "–"
    return html_page.time(text) if any(claim.timed for claim in claims) else text


def _errata(present: set[str]) -> Html:
    """Return the section of errata, with links to the figures that are `present` on the page."""
    header = ["where", "in the paper", "correction"]
    rows = [[erratum.place, typeset(erratum.printed), typeset(erratum.right)] for erratum in ERRATA]
    shown = [_links([name for name in erratum.figures if name in present]) for erratum in ERRATA]
    if any(shown):
        header.append("shown in")
        rows = [[*row, html_page.join(*links)] for row, links in zip(rows, shown, strict=True)]
    return html_page.section(
        "Errata of the paper",
        html_page.paragraph(
            typeset(
                "The prior is N(μ, Σp), the anchors are drawn from N(μ, Σ₀), the precision of the likelihood is "
                "A = Σ_like⁻¹, and the posterior covariance is P = (Σp⁻¹ + A)⁻¹. The library uses the corrected "
                "formulas; the figures show how large the errors of the printed formulas are."
            )
        ),
        html_page.table(header, rows),
        name="errata",
    )


def _links(names: Sequence[str]) -> list[str]:
    """Return links to figures, with commas between them."""
    parts: list[str] = []
    for name in names:
        parts += [", "] * bool(parts) + [html_page.link(f"#{name}", name.replace("_", " "))]
    return parts


def _figure(figure: Figure, result: Result, noted: dict[str, str]) -> Html:
    """Return the section of one figure.

    `noted` has the notes of the figures above, with the names of these figures. A note is shown once, and figures that
    repeat it link to the first one; new notes are added to `noted`.
    """
    notes = [note for note in figure.notes if note not in noted]
    repeated = dict.fromkeys(noted[note] for note in figure.notes if note in noted)
    noted |= dict.fromkeys(notes, figure.name)
    claims = [(_badge(claim), typeset(claim.text), _measured(claim)) for claim in figure.claims]
    shared = f" (one run for {len(result.figures)} figures)" if len(result.figures) > 1 else ""
    parts = [
        html_page.paragraph(typeset(figure.paper)),
        html_page.picture(figure.picture, figure.description),
        html_page.claims(claims) if claims else html_page.paragraph("The paper makes no claim here."),
        *(html_page.paragraph(typeset(note)) for note in notes),
        html_page.paragraph("See also the notes of ", *_links(list(repeated)), ".") if repeated else "",
        html_page.details("Numbers", *map(_table, figure.tables)) if figure.tables else "",
        html_page.details(
            "Reproduce it",
            html_page.paragraph(_seconds(result), f" seconds{shared}."),
            html_page.code(result.command(figure.name)),
            html_page.code(json.dumps(result.configuration, indent=1, ensure_ascii=False)),
        ),
    ]
    return html_page.section(figure.title, *parts, name=figure.name)


def _badge(claim: Claim) -> Html:
    """Return the badge with the verdict on a claim, marked as a time if the verdict depends on a measured time."""
    badge = html_page.badge(WORDS[claim.verdict], TONES[claim.verdict])
    return html_page.time(badge) if claim.timed else badge


def _measured(claim: Claim) -> str:
    """Return the measured number of a claim, marked if it is a time."""
    text = typeset(claim.measured)
    return html_page.time(text) if claim.timed else text


def _table(table: Table) -> Html:
    """Return a table, with times marked."""
    timed = [title in table.timed for title in table.header]
    rows = [
        [html_page.time(cell) if is_time else typeset(cell) for cell, is_time in zip(row, timed, strict=True)]
        for row in table.rows
    ]
    return html_page.table(table.header, rows, typeset(table.caption))


def _failures(failed: list[Result]) -> Html:
    """Return the section of experiments that failed."""
    parts = []
    for result in failed:
        last_line = result.error.strip().splitlines()[-1]
        parts.append(
            html_page.section(
                result.experiment,
                html_page.paragraph(html_page.badge("failed", "bad"), f" {last_line}"),
                html_page.details("Where", html_page.code(result.error)),
                html_page.code(result.command(result.experiment)),
                name=f"failure-{result.experiment}",
                level=3,
            )
        )
    return html_page.section("What failed", *parts, name="failures")


def _seconds(result: Result) -> Html:
    """Return the seconds of an experiment, marked as a time."""
    return html_page.time(f"{result.seconds:,.{1 if result.seconds < 100 else 0}f}")


def typeset(text: str) -> Html:
    """Return `text` as HTML: narrow spaces before per cent signs, subscripts of covariances, and code in backticks."""
    spaced = re.sub(r"(?<=\d) ?%", "\u202f%", html_page.join(text))
    subscripts = re.sub(r"Σ_?(like|p)\b", r"Σ<sub>\1</sub>", spaced)
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", subscripts))
