"""Faults on purpose, and whether the library keeps its promises.

    python benchmarks/faults                    every kind of trial: about 25 minutes on two cores
    python benchmarks/faults --quick            the same with few cases, in less than a minute; not stored
    python benchmarks/faults --only kills csv   some kinds

Rows are stored as they come, and a run that is cut goes on from there, as long as the library's source is the same. A
kind that is complete is not run again, unless --only names it. The exit code is 1 where a promise was not kept.
"""

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # so that this folder is a package, beside what all benchmarks share
os.environ.setdefault("ANCHORED_CACHE", str(HERE.parents[1] / ".cache" / "faults"))  # not the user's own
os.environ.setdefault("MPLBACKEND", "Agg")

import reporting  # noqa: E402

from anchored.paper import reproduction  # noqa: E402
from faults import results  # noqa: E402
from faults.catalogue import TRIALS  # noqa: E402


def main() -> int:
    """Run what is asked for in a folder that is removed at the end."""
    arguments = parse_arguments()
    with TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        return run(arguments, Path(folder))


def run(arguments: argparse.Namespace, folder: Path) -> int:
    """Try what is not known yet, print the table and what failed, and store both."""
    trials = [trial for trial in TRIALS if trial.name in (arguments.only or [trial.name])]
    settings = {"seed": arguments.seed, "quick": arguments.quick, "source": reproduction.source_hash()[:16]}
    rows = results.stored(arguments.out, settings)
    print(f"{reporting.describe(reporting.machine())}\n", flush=True)
    table = reporting.Table("trial", "tried", "held", "failed", "seconds", "most for a case")
    for trial in trials:
        size = trial.quick if arguments.quick else trial.size
        if arguments.only and rows.get(trial.name, {}).get("tried") == size:
            del rows[trial.name]
        for row in results.run(trial, folder, size, arguments.seed, rows.get(trial.name)):
            rows[trial.name] = row
            if arguments.out is not None:
                ordered = [rows[known.name] for known in TRIALS if known.name in rows]
                reporting.write_json(arguments.out, settings, {"rows": ordered})
        table.row(*results.cells(rows[trial.name]))
    failures = [f"{trial.name}: {failure}" for trial in trials for failure in rows[trial.name]["failures"]]
    print("", *failures, sep="\n")
    return int(bool(failures))


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[trial.name for trial in TRIALS], help="kinds to try")
    parser.add_argument("--quick", action="store_true", help="few cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/faults.json, or nowhere with --quick")
    arguments = parser.parse_args()
    if arguments.out is None and not arguments.quick:
        arguments.out = reporting.RESULTS / "faults.json"
    return arguments


if __name__ == "__main__":
    sys.exit(main())
