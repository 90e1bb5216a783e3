"""Deep exploration: episodes until an N × N deep sea is solved, for every method, ten seeds each.

    python benchmarks/deep_sea.py                     on a GPU, 13 minutes
    python benchmarks/deep_sea.py --sizes 10 --methods anchored

Rows that are stored already, with the same settings, are not run again. Remove the file to begin anew.
"""

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import reporting

from anchored.paper.experiments import deep_sea_study
from anchored.paper.experiments.deep_sea_study import METHODS, Setting


def stored_rows(path: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Of an earlier run with these settings."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return found["rows"] if found["settings"] == settings else []


def place(row: dict[str, Any]) -> tuple[str, int, int]:
    """Where a row stands in the table."""
    return row["method"], row["size"], row["budget"]


def main() -> None:
    """Run what is not known yet, print the table, store it and its picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    budgets = dict(Setting().budgets)
    parser.add_argument("--sizes", type=int, nargs="+", choices=budgets, default=list(budgets), help="of the sea")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=reporting.RESULTS / "deep_sea.json", help="the picture lies beside")
    arguments = parser.parse_args()
    whole = Setting(seed=arguments.seed)
    shared = json.loads(json.dumps({k: v for k, v in asdict(whole).items() if k not in ("budgets", "methods")}))
    order = [(method, *budget) for method in METHODS for budget in whole.budgets]
    known = [row for row in stored_rows(arguments.out, shared) if place(row) in order]

    def keep(row: dict[str, Any]) -> None:
        print(deep_sea_study.describe(row), flush=True)
        known.append(row)
        known.sort(key=lambda row: order.index(place(row)))
        reporting.write_json(arguments.out, shared, {"rows": known})

    setting = replace(
        whole,
        methods=tuple(arguments.methods),
        budgets=tuple(budget for budget in whole.budgets if budget[0] in arguments.sizes),
    )
    print(
        f"{reporting.describe(reporting.machine())}\n{'method':<28}{'N':>4}{'allowed':>8}   solved     median   range"
    )
    rows = deep_sea_study.run(setting, keep, list(known))
    for method in setting.methods:
        found = deep_sea_study.slope([row for row in rows if row["method"] == method])
        print(f"{method}: " + (f"episodes grow as N^{found:.2f}" if found is not None else "too few sizes solved"))
    deep_sea_study.draw(known, arguments.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
