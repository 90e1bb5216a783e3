"""Make the tables of the documents from stored results, so that no number is copied by hand.

A table is between the marks `<!-- stored: name -->` and `<!-- /stored -->`. After a benchmark has been run,

    python docs/stored_results.py

updates all tables, in the README and in the pages. After `anchored reproduce --out REPORT`,

    python docs/stored_results.py --report REPORT

first copies the results and pictures of the experiments that the documents show.
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

import defaults  # noqa: E402
import tables as comparison  # noqa: E402
import uci  # noqa: E402
from reporting import Json, number, source, stored_result  # noqa: E402

from anchored.paper.errata import ERRATA  # noqa: E402
from anchored.paper.findings import markdown  # noqa: E402

PAPER = ROOT / "benchmarks" / "results" / "paper"  # results of experiments, in the format of `anchored reproduce`
IMAGES = ROOT / "docs" / "images"
MARKED = re.compile(r"<!-- stored: (\w+) -->\n.*?<!-- /stored -->", re.S)
BENCHMARKS = {  # names of stored results, and modules that make their tables
    "uci": "uci",
    "classes": "classes",
    "odd_rows": "odd_rows",
    "table_shapes": "table_shapes",
    "tables": "tables",
    "noise": "noise",
    "gaussian_process": "gaussian_process",
    "cart_pole": "cart_pole",
    "defaults": "defaults",
    "deep_sea": "deep_sea",
    "replays": "replays",
    "bsuite_scores": "bsuite_scores",
    "rl": "rl",
    "rl_gymnasium": "rl_gymnasium",
    "rl_seeds": "rl_seeds",
    "speed": "speed",
    "million_rows": "million_rows",
    "speed_gpu": "speed_gpu",
    "table_speed": "table_speed",
    "playground": "playground",
    "clusters": "clusters",
    "scaling": "scaling",
    "scaling_gpu": "scaling",
    "streaming": "streaming",
    "faults": "faults.results",
}


def filled(text: str) -> str:
    """Return `text` with the tables of the current stored results."""
    return MARKED.sub(lambda mark: f"<!-- stored: {mark[1]} -->\n\n{TABLES[mark[1]]}\n\n<!-- /stored -->", text)


def documents() -> list[Path]:
    """Return the paths of all documents that may contain tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def all_tables() -> dict[str, str]:
    """Return every table, by the name in its mark."""
    tables: dict[str, str] = {}
    for name, module in BENCHMARKS.items():
        tables |= import_module(module).tables(stored_result(name))
    tables |= {name: paper_table(name) for name in EXPERIMENTS}
    return tables | {"glance": glance(), "errata": errata()}


def paper_table(name: str) -> str:
    """Return the table of the experiment `name`."""
    stored = json.loads((PAPER / f"{name}.json").read_text())
    return EXPERIMENTS[name](stored["figures"]) + source(stored, f"anchored reproduce --only {name}")


def first_table(figures: list[Json]) -> str:
    """Return the first table of the first of `figures`."""
    table = figures[0]["tables"][0]
    return markdown(table["header"], table["rows"])


def widest(figures: list[Json]) -> str:
    """Return the first table with only the rows that have the largest width, or no width."""
    table = figures[0]["tables"][0]
    width = max((row[1] for row in table["rows"] if row[1]), key=int)
    rows = [[row[0], *row[2:]] for row in table["rows"] if row[1] in ("", width)]
    return markdown([f"width {int(width):,}", *table["header"][2:]], rows)


def errata() -> str:
    """Return the table of errata of the paper."""
    rows = [(erratum.place, escaped(erratum.printed), escaped(erratum.right)) for erratum in ERRATA]
    return markdown(("where", "in the paper", "correction"), rows).rstrip()


def escaped(text: str) -> str:
    """Return `text` for a cell of a table, with escaped bars and with subscripts."""
    return re.sub(r"Σ_like\b", "Σ<sub>like</sub>", text.replace("|", "\\|"))


def glance() -> str:
    """Return the table of selected results for the README."""
    tables, speed, agents = stored_result("uci"), stored_result("speed"), stored_result("defaults")
    with_goal = [row for row in tables["regression"] if row["set"] in uci.GOALS]
    n_met = sum(row["mean"]["nll"] <= uci.GOALS[row["set"]] for row in with_goal)
    coverages = [row["mean"]["coverage"] for row in tables["regression"]]
    millions = stored_result("million_rows")
    measured = {line["what"]: line["value"] for line in [*speed["steps"], *millions["lines"]]}
    ratio, predicted = measured["torch, a loop over modules / anchored"], measured["predict 1,000,000 × 13, means"]
    seas = [row for row in stored_result("deep_sea")["rows"] if row["method"] == "anchored"]
    deepest = max(seas, key=lambda row: row["size"])
    solved = [episodes for episodes in deepest["solved"] if episodes is not None]
    means = ", ".join(f"{name} {number(mean, 0)}" for name, mean in defaults.means(agents).items())
    classes = {row["set"]: row for row in stored_result("classes")["classes"] if row["method"] == "anchored"}
    rows = [
        (
            "[Regression without tuning](docs/results/tables.md)",
            f"the negative log-likelihood reaches its goal on {n_met} of the {len(with_goal)} UCI sets with a goal: "
            "about the value that Pearce et al. published after tuning (for Yacht, a value that we set); 95 % "
            f"intervals cover {100 * min(coverages):.0f} to {100 * max(coverages):.0f} % of the targets",
        ),
        *compared_with_libraries(),
        (
            "[Classification](docs/results/tables.md#classes)",
            f"log loss {classes['digits']['log_loss']:.3f} on digits, {classes['breast_cancer']['log_loss']:.3f} on "
            f"breast cancer, {classes['mnist']['log_loss']:.3f} on MNIST; the epistemic uncertainty of a model trained "
            "on MNIST separates images of Fashion-MNIST from test images of MNIST with an AUROC of "
            f"{classes['mnist']['fashion_auroc']:.3f}",
        ),
        (
            "[Control](docs/results/reinforcement-learning.md#defaults)",
            f"mean return over seeds, with the same default arguments in every environment: {means}",
        ),
        (
            "[Deep exploration](docs/results/reinforcement-learning.md#deep-exploration)",
            f"DeepSea, bsuite's test of exploration, of size {deepest['size']} × {deepest['size']}: solved with "
            f"{len(solved)} of {len(deepest['solved'])} seeds within {number(deepest['budget'], 0)} episodes "
            f"(median {number(median(solved), 0)}; on a GPU)",
        ),
        (
            "[Speed](docs/results/speed.md)",
            f"a training step of ten members {ratio:.0f} × faster than a loop over PyTorch modules; a million rows "
            f"predicted in {predicted:.1f} s",
        ),
    ]
    return markdown(("", "measured on two CPU cores, except where noted"), rows).rstrip()


def compared_with_libraries() -> list[tuple[str, str]]:
    """Return the row of the comparison with other libraries, or no row if our own fits are not stored yet."""
    stored = stored_result("tables")
    if not any(row["method"] == "anchored" for row in stored["rows"]):
        return []
    page = "docs/results/tables.md#compared-with-other-libraries"
    return [(f"[Compared with other libraries]({page})", comparison.in_words(stored))]


def copy_report(report: Path) -> None:
    """Copy the results of EXPERIMENTS, and pictures that the documents already have, from the folder `report`."""
    PAPER.mkdir(parents=True, exist_ok=True)
    for path in sorted((report / "results").glob("*/result.json")):
        if path.parent.name in EXPERIMENTS:
            shutil.copy(path, PAPER / f"{path.parent.name}.json")
        for figure in json.loads(path.read_text())["figures"]:
            if (IMAGES / f"{figure['name']}.png").exists():
                shutil.copy(path.parent / figure["picture"], IMAGES / f"{figure['name']}.png")


def main() -> None:
    """Update the tables of all documents."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--report", type=Path, help="folder that `anchored reproduce` wrote")
    options = parser.parse_args()
    if options.report is not None:
        copy_report(options.report)
        TABLES.update(all_tables())
    for document in documents():
        document.write_text(filled(document.read_text()))


EXPERIMENTS: dict[
    str, Callable[[list[Json]], str]
] = {  # experiments in the documents, and functions that make their tables
    "figure_1": first_table,
    "figure_2": first_table,
    "convergence": widest,
}
TABLES = all_tables()

if __name__ == "__main__":
    main()
