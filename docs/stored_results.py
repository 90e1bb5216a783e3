"""Tables and pictures of the documents, made from stored results: no number is copied by hand.

A table stands between `<!-- stored: name -->` and `<!-- /stored -->`. After a benchmark has run anew,

    python docs/stored_results.py

writes all of them again, in the README and in the pages; the site is built with fresh ones in any case. After
`anchored reproduce --out REPORT`,

    python docs/stored_results.py --report REPORT

first takes over the results of the experiments that the documents show, and their pictures.
"""

import argparse
import json
import re
import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "benchmarks"))

import uci  # noqa: E402
from control import TUNED_DQN  # noqa: E402
from reporting import Json, number, source, stored_result  # noqa: E402

from anchored.paper.errata import ERRATA  # noqa: E402
from anchored.paper.findings import markdown  # noqa: E402

PAPER = ROOT / "benchmarks" / "results" / "paper"  # results of experiments, as `anchored reproduce` stores them
IMAGES = ROOT / "docs" / "images"
MARKED = re.compile(r"<!-- stored: (\w+) -->\n.*?<!-- /stored -->", re.S)
BENCHMARKS = {  # stored results, and the modules that make tables of them
    "uci": "uci",
    "noise": "noise",
    "gaussian_process": "gaussian_process",
    "control": "control",
    "deep_sea": "deep_sea",
    "rl": "rl",
    "rl_seeds": "rl_seeds",
    "speed": "speed",
    "speed_gpu": "speed",
    "faults": "faults.results",
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """A page as mkdocs is to build it."""
    return filled(markdown)


def filled(text: str) -> str:
    """The text with its tables as the stored results have them now."""
    return MARKED.sub(lambda mark: f"<!-- stored: {mark[1]} -->\n\n{TABLES[mark[1]]}\n\n<!-- /stored -->", text)


def documents() -> list[Path]:
    """All that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def all_tables() -> dict[str, str]:
    """Every table by the name that marks it."""
    made: dict[str, str] = {}
    for name, module in BENCHMARKS.items():
        made |= import_module(module).tables(stored_result(name))
    made |= {name: paper_table(name) for name in EXPERIMENTS}
    return made | {"glance": glance(), "errata": errata()}


def paper_table(name: str) -> str:
    """What the documents show of an experiment."""
    stored = json.loads((PAPER / f"{name}.json").read_text())
    return EXPERIMENTS[name](stored["figures"]) + source(stored, f"anchored reproduce --only {name}")


def first_table(figures: list[Json]) -> str:
    """The table of an experiment with one figure."""
    table = figures[0]["tables"][0]
    return markdown(table["header"], table["rows"])


def widest(figures: list[Json]) -> str:
    """Of a table by width, the rows of the largest, and those without one."""
    table = figures[0]["tables"][0]
    width = max((row[1] for row in table["rows"] if row[1]), key=int)
    rows = [[row[0], *row[2:]] for row in table["rows"] if row[1] in ("", width)]
    return markdown([f"width {int(width):,}", *table["header"][2:]], rows)


def claims(figures: list[Json]) -> str:
    """What the paper claims of each figure, whether it holds, and by what number."""
    rows = [
        (figure["title"].split(":")[0], escaped(claim["text"]), claim["status"], escaped(claim["measured"]))
        for figure in figures
        for claim in figure["claims"]
    ]
    return markdown(("", "the paper", "here", "measured"), rows)


def errata() -> str:
    """What is wrong in the paper, and right."""
    rows = [(erratum.place, escaped(erratum.printed), escaped(erratum.right)) for erratum in ERRATA]
    return markdown(("where", "printed", "right"), rows).rstrip()


def escaped(text: str) -> str:
    """For a cell of a table: bars that are absolute values, and subscripts."""
    return re.sub(r"Σ_like\b", "Σ<sub>like</sub>", text.replace("|", "\\|"))


def glance() -> str:
    """A few of all these, for the README."""
    found, fast, learnt = stored_result("uci"), stored_result("speed"), stored_result("control")
    scored = [row for row in found["regression"] if row["set"] in uci.BARS]
    better = sum(row["mean"]["nll"] <= uci.BARS[row["set"]] for row in scored)
    coverages = [row["mean"]["coverage"] for row in found["regression"]]
    told = {line["what"]: line["value"] for part in ("steps", "first_fit", "prediction") for line in fast[part]}
    ratio, predicted = told["torch, a loop over modules / anchored"], told["predict 1,000,000 × 13"]
    seas = [row for row in stored_result("deep_sea")["rows"] if row["method"] == "anchored"]
    deepest = max(seas, key=lambda row: row["size"])
    solved = [episodes for episodes in deepest["solved"] if episodes is not None]
    means = ", ".join(f"{name} {number(learnt[name]['mean']['value'], 0)}" for name in TUNED_DQN)
    (digits,) = found["classification"]
    rows = [
        (
            "[Tables, no tuning](docs/results/tables.md)",
            f"NLL below its bar, about what the authors publish after tuning to each set, on {better} of {len(scored)} "
            f"UCI sets; 95 % intervals hold {100 * min(coverages):.0f} to {100 * max(coverages):.0f} %",
        ),
        (
            "[Beside a sampler](docs/results/tables.md#beside-a-sampler)",
            f"sklearn-contrib-bde's {uci.rival_in_words(found)}",
        ),
        (
            "[Classes](docs/results/tables.md#classes)",
            f"digits: {100 * digits['accuracy']:.1f} % right, calibration error "
            f"{100 * digits['expected_calibration_error']:.1f} %",
        ),
        (
            "[Control](docs/results/reinforcement-learning.md#control-through-the-public-agent)",
            f"mean return of five seeds, one setting for all: {means}",
        ),
        (
            "[Deep exploration](docs/results/reinforcement-learning.md#deep-exploration)",
            f"a deep sea of size {deepest['size']} solved by {len(solved)} of {len(deepest['solved'])} seeds within "
            f"{number(deepest['budget'], 0)} episodes, the median after {number(median(solved), 0)}; on a GPU",
        ),
        (
            "[Speed](docs/results/speed.md)",
            f"a training step of ten members {ratio:.0f} × faster than a loop over PyTorch modules; a million rows "
            f"predicted in {predicted:.1f} s",
        ),
    ]
    return markdown(("", "measured on two cores, unless it says a GPU"), rows).rstrip()


def take_over(report: Path) -> None:
    """Copy what the documents show of a report: results of experiments, and pictures that are there already."""
    PAPER.mkdir(parents=True, exist_ok=True)
    for path in sorted((report / "results").glob("*/result.json")):
        if path.parent.name in EXPERIMENTS:
            shutil.copy(path, PAPER / f"{path.parent.name}.json")
        for figure in json.loads(path.read_text())["figures"]:
            if (IMAGES / f"{figure['name']}.png").exists():
                shutil.copy(path.parent / figure["picture"], IMAGES / f"{figure['name']}.png")


def main() -> None:
    """Write all tables again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, help="folder that `anchored reproduce` wrote")
    options = parser.parse_args()
    if options.report is not None:
        take_over(options.report)
        TABLES.update(all_tables())
    for document in documents():
        document.write_text(filled(document.read_text()))


EXPERIMENTS: dict[str, Callable[[list[Json]], str]] = {  # those the documents show, and how
    "figure_1": first_table,
    "figure_2": first_table,
    "convergence": widest,
    "cart_pole_figures": claims,
}
TABLES = all_tables()

if __name__ == "__main__":
    main()
