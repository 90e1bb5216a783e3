"""The report of a reproduction: one page, made of nothing but the stored results."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from anchored import html_page
from anchored.html_page import Html
from anchored.paper.experiments.catalogue import needed
from anchored.paper.experiments.exhibit import CORRECTED, FAILS, HOLDS, VERDICTS, Claim, Exhibit, Table
from anchored.paper.reproduction import Result, stored
from anchored.storage import atomic

Shown = tuple[Exhibit, Result]
TONES = {HOLDS: "good", FAILS: "bad", CORRECTED: "mixed"}
PAPER = "Bayesian Inference with Anchored Ensembles of Neural Networks (Pearce et al. 2018)"
ERRATA = (
    (
        "eq. 30",
        "C Σp⁻¹ C⁻¹ Σp C⁻¹ (with C = Σp⁻¹ + Σ_like⁻¹): factors in the wrong order and inverted. For isotropic Σp the "
        "product is the posterior's covariance itself.",
        "Σ₀ = Σp C Σp = Σp + Σp A Σp, with A the precision of the likelihood. A may be singular: nothing inverts it.",
        ("theorem",),
    ),
    (
        "eq. 31",
        "λ₁³I + λ₁²Σ_like⁻¹, which is right for λ₁ = 1 alone.",
        "λ₁I + λ₁²Σ_like⁻¹.",
        ("figure_8",),
    ),
    (
        "eq. 33, and λ₃ after it",
        "(λ₁³ + λ₁²λ₂)I: the same slip, and λ₂, a variance, the wrong way up.",
        "(λ₁ + λ₁²/λ₂)I. Even so it is a poor approximation where the data know some directions well.",
        ("figure_8", "theorem"),
    ),
    (
        "“regularised about their initialisation values”",
        "Anchors from the plain prior, Σ₀ = Σp, do not give the posterior: the covariance P Σp⁻¹ P is too small by "
        "P A P, with P the posterior's covariance.",
        "Add noise of the observations' variance to each member's targets, drawn once: the covariance is then P, "
        "exactly so for linear models and for the last layer.",
        ("theorem", "convergence"),
    ),
    (
        "“converges to the corresponding GP”",
        "Not when all layers train: wide networks then move in their tangent space, and the limit is another process.",
        "Exact when the last layer alone is trained with noisy targets (Proposition 1). The other limit is known in "
        "closed form, and is near.",
        ("convergence", "figure_1"),
    ),
    (
        "eq. 2, one λ",
        "One λ for all parameters, and in the released code a division by the size of the batch instead of N.",
        "λ = σ²/s² for each layer's own prior variance s², divided by N, the number of rows, on a minibatch too.",
        (),
    ),
)


def write(wanted: Sequence[str], folder: Path, quick: bool = False, seed: int = 0) -> Path:
    """The page for the exhibits wanted, from what is stored of them by now."""
    results = [stored(experiment, folder, quick, seed) for experiment in needed(wanted)]
    path = folder / "index.html"
    folder.mkdir(parents=True, exist_ok=True)
    atomic.write_text(path, page([result for result in results if result], wanted, quick))
    return path


def page(results: Sequence[Result], wanted: Sequence[str], quick: bool) -> Html:
    """The page of these results. An exhibit whose experiment failed, or has not run yet, is named as that."""
    shown = {e.name: (e, result) for result in results for e in result.exhibits if e.name in wanted}
    failed = [result for result in results if result.error]
    of_paper, ours = ([shown[n] for n in wanted if n in shown and shown[n][0].ours is own] for own in (False, True))
    waiting = [name for e in needed(wanted) if e.name not in {r.experiment for r in results} for name in e.shows]
    lead = (
        f"Every figure of “{PAPER}”, made anew: what the paper says, in our words, what we measured, and whether the "
        "two agree."
    )
    rehearsal = html_page.paragraph(
        html_page.badge("rehearsal", "mixed"),
        " A quick run, small and short, to see that everything works. Its verdicts say nothing about the paper; leave "
        "out --quick for those that do.",
    )
    return html_page.page(
        "The paper, rebuilt",
        rehearsal if quick else "",
        _summary(results, of_paper, ours, [name for name in waiting if name in wanted]),
        _errata(set(shown)),
        _failures(failed) if failed else "",
        *(_exhibit(exhibit, result) for exhibit, result in (*of_paper, *ours)),
        lead=lead,
    )


def _summary(results: Sequence[Result], of_paper: list[Shown], ours: list[Shown], waiting: Sequence[str]) -> Html:
    rows: list[tuple[str, ...]] = []
    told: set[str] = set()  # experiments whose seconds stand in the table
    for label, group in (("The paper, in all", of_paper), ("Ours, in all", ours)):
        for exhibit, result in group:
            counts = (_count([exhibit], verdict) for verdict in VERDICTS)
            seconds = "" if result.experiment in told else _seconds(result)
            rows.append((html_page.link(f"#{exhibit.name}", exhibit.title), *counts, seconds))
            told.add(result.experiment)
        if group:
            totals = (_count([exhibit for exhibit, _ in group], verdict) for verdict in VERDICTS)
            rows.append((html_page.element("strong", label), *totals, ""))
    for result in results:
        if result.error:
            rows.append((html_page.link("#failures", f"{result.experiment}: failed"), "", "", "", _seconds(result)))
    rows += [(f"{name}: not run yet", "", "", "", "") for name in waiting]
    machines: dict[str, float] = {}
    for result in results:
        machines[result.machine] = machines.get(result.machine, 0) + result.seconds
    return html_page.section(
        "Summary",
        html_page.items(
            (
                html_page.join(html_page.badge(HOLDS, "good"), " in our runs, as the paper says"),
                html_page.join(html_page.badge(FAILS, "bad"), " in our runs"),
                html_page.join(
                    html_page.badge(CORRECTED, "mixed"), " wrong as the paper has it, right in the form we give"
                ),
            )
        ),
        html_page.table(("exhibit", *VERDICTS, "seconds"), rows, "Claims, by exhibit"),
        html_page.paragraph("Where one study has several exhibits, its seconds stand at the first."),
        *(
            html_page.paragraph(html_page.time(f"{seconds:.0f}"), f" seconds in all, on this machine: {machine}.")
            for machine, seconds in machines.items()
        ),
        name="summary",
    )


def _count(exhibits: list[Exhibit], verdict: str) -> str:
    claims = [claim for exhibit in exhibits for claim in exhibit.claims]
    found = sum(claim.verdict == verdict for claim in claims)
    text = str(found) if found else "–"
    return html_page.time(text) if any(claim.timed for claim in claims) else text


def _errata(present: set[str]) -> Html:
    rows = [
        (place, typeset(printed), typeset(right), html_page.join(*_links([name for name in names if name in present])))
        for place, printed, right, names in ERRATA
    ]
    return html_page.section(
        "Errata of the paper",
        html_page.paragraph(
            typeset(
                "Prior N(μ, Σp), anchors N(μ, Σ₀), likelihood with precision A = Σ_like⁻¹, posterior covariance "
                "P = (Σp⁻¹ + A)⁻¹. The library has the right forms; the printed ones live on in the exhibits that show "
                "by how much they miss."
            )
        ),
        html_page.table(("where", "printed", "right", "shown in"), rows),
        name="errata",
    )


def _links(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        found += [", "] * bool(found) + [html_page.link(f"#{name}", name.replace("_", " "))]
    return found


def _exhibit(exhibit: Exhibit, result: Result) -> Html:
    claims = [(_badge(claim), typeset(claim.text), _measured(claim)) for claim in exhibit.claims]
    shared = f" (one run for {len(result.exhibits)} exhibits)" if len(result.exhibits) > 1 else ""
    parts = [
        html_page.paragraph(typeset(exhibit.paper)),
        html_page.picture(exhibit.picture, exhibit.description),
        html_page.claims(claims) if claims else html_page.paragraph("There is no claim to judge."),
        *(html_page.paragraph(typeset(note)) for note in exhibit.notes),
        html_page.details("Numbers", *map(_table, exhibit.tables)) if exhibit.tables else "",
        html_page.details(
            "Make it again",
            html_page.paragraph(_seconds(result), f" seconds{shared}."),
            html_page.code(result.command(exhibit.name)),
            html_page.code(json.dumps(result.configuration, indent=1, ensure_ascii=False)),
        ),
    ]
    return html_page.section(exhibit.title, *parts, name=exhibit.name)


def _badge(claim: Claim) -> Html:
    badge = html_page.badge(claim.verdict, TONES[claim.verdict])
    return html_page.element("span", badge, class_="time") if claim.timed else badge


def _measured(claim: Claim) -> str:
    text = typeset(claim.measured)
    return html_page.time(text) if claim.timed else text


def _table(table: Table) -> Html:
    timed = [title in table.timed for title in table.header]
    rows = [
        [html_page.time(cell) if is_time else typeset(cell) for cell, is_time in zip(row, timed, strict=True)]
        for row in table.rows
    ]
    return html_page.table(table.header, rows, typeset(table.caption))


def _failures(failed: list[Result]) -> Html:
    parts = []
    for result in failed:
        last = result.error.strip().splitlines()[-1]
        parts.append(
            html_page.section(
                result.experiment,
                html_page.paragraph(html_page.badge("failed", "bad"), f" {last}"),
                html_page.details("Where", html_page.code(result.error)),
                html_page.code(result.command(result.experiment)),
                name=f"failure-{result.experiment}",
                level=3,
            )
        )
    return html_page.section("What failed", *parts, name="failures")


def _seconds(result: Result) -> Html:
    return html_page.time(f"{result.seconds:.1f}")


def typeset(text: str) -> Html:
    """A narrow space before each per cent, and covariances with their subscripts."""
    spaced = re.sub(r"(?<=\d) ?%", "\u202f%", html_page.join(text))
    return Html(re.sub(r"Σ_?(like|p)\b", r"Σ<sub>\1</sub>", spaced))
