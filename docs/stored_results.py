"""Tables of the documents, made from benchmarks/results: no number is copied by hand.

A table stands between `<!-- stored: name -->` and `<!-- /stored -->`. After a benchmark has run anew,

    python docs/stored_results.py

writes all of them again, in the README and in the pages; the site is built with fresh ones in any case.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BENCHMARKS = ROOT / "benchmarks"
MARKED = re.compile(r"<!-- stored: (\w+) -->\n.*?<!-- /stored -->", re.S)
NAMES = {
    "boston": "Boston",
    "concrete": "Concrete",
    "energy": "Energy",
    "kin8nm": "Kin8nm",
    "naval": "Naval",
    "power": "Power",
    "protein": "Protein",
    "wine_red": "Wine, red",
    "wine_red, no duplicates": "Wine, no duplicates",
    "yacht": "Yacht",
}
TUNED_DQN = {"CartPole-v1": 500, "Acrobot-v1": -77, "MountainCar-v0": -101}  # as RL Baselines3 Zoo lists them

Splits = list[dict[str, float]]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page as mkdocs is to build it."""
    return filled(markdown)


def filled(text: str) -> str:
    """The text with its tables as the stored results have them now."""
    return MARKED.sub(lambda mark: f"<!-- stored: {mark[1]} -->\n\n{TABLES[mark[1]]()}\n\n<!-- /stored -->", text)


def documents() -> list[Path]:
    """All that may hold tables."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def regression() -> str:
    """The nine UCI sets with defaults."""
    found, bars = results("uci"), constant("uci", "BARS")
    columns = ("set", "N", "D", "RMSE", "NLL", "95 % coverage", "seconds a fit", "NLL bar")
    order = list(NAMES)
    rows = [
        (
            NAMES[row["set"]],
            f"{row['N']:,}",
            str(row["D"]),
            mean_and_error(row["splits"], "rmse", digits_of(row["mean"]["rmse"])),
            mean_and_error(row["splits"], "nll", 2),
            f"{row['mean']['coverage']:.1%}".replace("%", " %"),
            f"{row['mean']['seconds']:.1f}",
            number(bars[row["set"]], 2) if row["set"] in bars else "",
        )
        for row in sorted(found["regression"], key=lambda row: order.index(row["set"]))
    ]
    return table(columns, rows) + source(found, "python benchmarks/uci.py --data DIR")


def rival() -> str:
    """Beside sklearn-contrib-bde."""
    found = results("uci")
    columns = ("set, split", "NLL", "bde (as a mixture)", "RMSE", "bde", "seconds", "bde")
    rows = []
    for row in found["rival"]:
        ours, theirs = row["anchored"], row["bde"]
        rows.append(
            (
                f"{NAMES[row['set']]} {row['split']}",
                number(ours["nll"], 2),
                f"{number(theirs['nll'], 2)} ({number(theirs['mixture_nll'], 2)})",
                number(ours["rmse"], 2),
                number(theirs["rmse"], 2),
                number(ours["seconds"], 1),
                number(theirs["seconds"], 0),
            )
        )
    made = source(found, "python benchmarks/uci.py --data DIR --bde-python PYTHON")
    return f"Its {verdict_on_rival(found)}.\n\n{table(columns, rows)}{made}"


def verdict_on_rival(found: dict[str, Any]) -> str:
    """How bde does, in a few words."""
    better = sum(row["bde"]["nll"] < row["anchored"]["nll"] for row in found["rival"])
    slower = [row["bde"]["seconds"] / row["anchored"]["seconds"] for row in found["rival"]]
    n_splits, span = len(slower), f"{min(slower):.0f} to {max(slower):.0f}"
    return f"NLL is better on {better} of {n_splits} splits, in {span} times the time"


def digits() -> str:
    """Classification."""
    found = results("uci")
    scores = found["classification"]
    columns = ("accuracy", "expected calibration error", "log loss", "seconds a fit")
    error = f"{100 * scores['expected_calibration_error']:.1f} %"
    row = (f"{100 * scores['accuracy']:.1f} %", error, f"{scores['log_loss']:.3f}", f"{scores['seconds']:.1f}")
    return table(columns, [row]) + source(found, "python benchmarks/uci.py --sets none --classes")


def noise() -> str:
    """Four treatments of noise that varies with x."""
    found = results("noise")
    treatments = {"constant": "constant", "model": "noise model", "weighted": "weighted too", "joint": "joint head"}
    rows = [
        (
            NAMES[name],
            *(f"{mean_and_error(by[t], 'nll', 2)} ({number(average(by[t], 'rmse'), 2)})" for t in treatments),
        )
        for name, by in sorted(found["results"].items())
    ]
    return table(("set", *treatments.values()), rows) + source(found, "python benchmarks/noise.py --data DIR")


def processes() -> str:
    """The exact processes on the authors' splits, beside the published table, and on the standard splits."""
    found, published = results("gaussian_process"), constant("gaussian_process", "PUBLISHED")
    columns = ("set", "kernel", "RMSE", "NLL", "published RMSE, NLL", "standard splits: RMSE", "NLL")
    rows = []
    for authors, standard in zip(found["authors"], found["standard"], strict=True):
        *_, rmse, nll = published[authors["set"], authors["kernel"]]
        rows.append(
            (
                NAMES[authors["set"]],
                authors["kernel"],
                *(in_brackets(authors["splits"], score) for score in ("rmse", "nll")),
                f"{rmse}, {nll}: {'every digit' if authors['same_digits'] else 'not the same'}",
                *(in_brackets(standard["splits"], score) for score in ("rmse", "nll")),
            )
        )
    return table(columns, rows) + source(found, "python benchmarks/gaussian_process.py --data DIR")


def control() -> str:
    """The public agent on Gymnasium."""
    found = results("control")
    rows = []
    for name, tuned in TUNED_DQN.items():
        one = found[name]
        low, high = one["interval"]
        each = ", ".join(number(run["mean_return"], 1) for run in one["runs"])
        mean = f"{number(one['mean']['value'], 1)} ({number(low, 1)} to {number(high, 1)})"
        steps = f"{one['runs'][0]['steps']:,}"
        rows.append((name, steps, each, mean, f"≥ {number(one['mean']['goal'], 0)}", number(tuned, 0)))
    columns = ("environment", "steps", "each seed", "mean", "goal", "tuned DQN")
    return table(columns, rows) + source(found, "python benchmarks/control.py")


def agent_speed() -> str:
    """The agent of figure 4 beside torch's."""
    found = results("rl")
    return measured(found["beside_torch"]) + source(found, "python benchmarks/rl.py")


def many_seeds() -> str:
    """Fifty seeds of that agent in one program."""
    found = results("rl_seeds")
    return measured(found["many_seeds"]) + source(found, "python benchmarks/rl_seeds.py")


def deep_sea() -> str:
    """Episodes until the deep sea is solved."""
    found = results("deep_sea")
    budgets = {row["size"]: row["budget"] for row in found["rows"]}
    cells: dict[str, dict[int, str]] = {}
    for row in found["rows"]:
        solved = [episodes for episodes in row["solved"] if episodes is not None]
        middle = f"{number(median(solved), 0)} " if solved else ""
        cells.setdefault(row["method"], {})[row["size"]] = f"{middle}({len(solved)})"
    columns = ("method", *(f"N = {size}, within {number(budget, 0)}" for size, budget in budgets.items()))
    rows = [(method, *(by_size.get(size, "") for size in budgets)) for method, by_size in cells.items()]
    return table(columns, rows) + source(found, "python benchmarks/deep_sea.py")


def speed() -> str:
    """Training and prediction on two cores."""
    found = results("speed")
    lines = [line for part in ("steps", "first_fit", "prediction", "additions") for line in found[part]]
    return measured(lines) + source(found, "python benchmarks/speed.py")


def speed_gpu() -> str:
    """Steps on an accelerator."""
    found = results("speed_gpu")
    return measured(found["gpu_steps"]) + source(found, "python benchmarks/speed.py --gpu")


def faults() -> str:
    """Faults on purpose, and what became of them."""
    found = results("faults")
    counts = ("tried", "held", "failed", "seconds")
    rows = [(row["trial"], row["promise"], *(number(row[name], 0) for name in counts)) for row in found["rows"]]
    command = "python benchmarks/faults --quick" if found["settings"]["quick"] else "make faults"
    return table(("trial", "what holds in each case", *counts), rows) + f"\n{most(found)}\n" + source(found, command)


def most(found: dict[str, Any]) -> str:
    """What cases took at most, in a sentence or two."""
    rows = {row["trial"]: row for row in found["rows"]}
    told = []
    files = [rows[name] for name in ("damaged", "forged") if name in rows]
    if files:
        slowest, largest = (max(row[name] for row in files) for name in ("longest", "grown"))
        told.append(f"No file took more than {slowest:.1f} s or {largest / 1e6:,.0f} MB to be refused or read.")
    if "shapes" in rows:
        row = rows["shapes"]
        told.append(
            f"{row['tried']} fits of different shapes brought one process to {row['maps']:,.0f} memory maps and "
            f"{row['resident'] / 1e6:,.0f} MB at most."
        )
    return " ".join(told)


def glance() -> str:
    """A few of all these, for the README."""
    uci, fast, learnt = results("uci"), results("speed"), results("control")
    bars = constant("uci", "BARS")
    scored = [row for row in uci["regression"] if row["set"] in bars]
    better = sum(row["mean"]["nll"] <= bars[row["set"]] for row in scored)
    coverages = [row["mean"]["coverage"] for row in uci["regression"]]
    told = {line["what"]: line["value"] for part in ("steps", "first_fit", "prediction") for line in fast[part]}
    ratio, predicted = told["torch, a loop over modules / anchored"], told["predict 1,000,000 × 13"]
    seas = [row for row in results("deep_sea")["rows"] if row["method"] == "anchored"]
    deepest = max(seas, key=lambda row: row["size"])
    solved = [episodes for episodes in deepest["solved"] if episodes is not None]
    means = ", ".join(f"{name} {number(learnt[name]['mean']['value'], 0)}" for name in TUNED_DQN)
    rows = [
        (
            "[Tables, no tuning](docs/results/tables.md)",
            f"NLL below its bar, about what the authors publish after tuning to each set, on {better} of {len(scored)} "
            f"UCI sets; 95 % intervals hold {100 * min(coverages):.0f} to {100 * max(coverages):.0f} %",
        ),
        (
            "[Beside a sampler](docs/results/tables.md#beside-a-sampler)",
            f"sklearn-contrib-bde's {verdict_on_rival(uci)}",
        ),
        (
            "[Classes](docs/results/tables.md#classes)",
            f"digits: {100 * uci['classification']['accuracy']:.1f} % right, calibration error "
            f"{100 * uci['classification']['expected_calibration_error']:.1f} %",
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
    return table(("", "measured on two cores"), rows).rstrip()


TABLES: dict[str, Callable[[], str]] = {
    made.__name__: made
    for made in (
        regression,
        rival,
        digits,
        noise,
        processes,
        control,
        deep_sea,
        agent_speed,
        many_seeds,
        speed,
        speed_gpu,
        faults,
        glance,
    )
}


# What tables are made of


def results(name: str) -> dict[str, Any]:
    """What a benchmark has stored."""
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())


def constant(script: str, name: str) -> Any:
    """A constant of a benchmark, read without running it."""
    for node in ast.parse((BENCHMARKS / f"{script}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise LookupError(f"benchmarks/{script}.py has no constant {name}")


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def measured(lines: list[dict[str, Any]]) -> str:
    """Single numbers with their goals."""
    rows = []
    for line in lines:
        goal = ""
        if line["goal"] is not None:
            sign, verdict = "≥" if line["at_least"] else "≤", "met" if line["met"] else "missed"
            goal = f"{sign} {line['goal']:g} {line['unit']}, {verdict}"
        value = f"{line['value']:,.0f}" if abs(line["value"]) >= 100 else f"{line['value']:.3g}"
        rows.append((line["what"], f"{value} {line['unit']}", goal))
    return table(("what", "measured", "goal"), rows)


def source(found: dict[str, Any], command: str) -> str:
    """The command that makes a table again, and where and when it ran."""
    machine = found["machine"]
    device = "" if machine["device"] == "cpu" else f", {machine['device']}"
    where = f"{machine['cpu']}, {machine['cores']} cores{device}, JAX {machine['versions']['jax']}"
    return f"\n*`{command}`; last run on {found['written'][:10]}: {where}.*"


def number(value: float, digits: int) -> str:
    """With a true minus sign."""
    return f"{value:,.{digits}f}".replace("-", "−")


def digits_of(value: float) -> int:
    """How many digits after the point show the first few that count."""
    return 2 if value > 0.1 else 4 if value > 0.01 else 5


def average(splits: Splits, score: str) -> float:
    """Over splits."""
    return fmean(split[score] for split in splits)


def standard_error(splits: Splits, score: str) -> float:
    """Of the mean over splits."""
    return stdev(split[score] for split in splits) / len(splits) ** 0.5


def mean_and_error(splits: Splits, score: str, digits: int) -> str:
    """Mean ± standard error."""
    return f"{number(average(splits, score), digits)} ± {standard_error(splits, score):.{digits}f}"


def in_brackets(splits: Splits, score: str) -> str:
    """Mean (standard error), as the papers print them."""
    return f"{number(average(splits, score), 2)} ({standard_error(splits, score):.2f})"


if __name__ == "__main__":
    for document in documents():
        document.write_text(filled(document.read_text()))
