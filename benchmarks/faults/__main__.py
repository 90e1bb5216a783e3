"""Inject faults, and count in how many cases the library behaves as documented.

    python benchmarks/faults                    every trial: about an hour on two cores
    python benchmarks/faults --quick            every trial with few cases, in less than a minute; not stored
    python benchmarks/faults --only kills csv   some trials

Results are stored while trials run. A run that was interrupted continues where it stopped, as long as the source of the
library is the same, and a complete trial is not run again unless --only names it. The exit code is 1 if a case failed.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).resolve().parent
sys.path[0] = str(HERE.parent)  # so that this folder is imported as a package, and `reporting` is found
os.environ.setdefault("ANCHORED_CACHE", str(HERE.parents[1] / ".cache" / "faults"))  # not the user's cache
os.environ.setdefault("MPLBACKEND", "Agg")

import reporting  # noqa: E402
from reporting import Json  # noqa: E402

from anchored.paper.sources import source_hash  # noqa: E402
from faults import results  # noqa: E402
from faults.catalogue import TRIALS  # noqa: E402

TESTED_MODULES = ("anchored.cli", "anchored.paper.experiments.figure_8", "anchored.rl", "anchored.tables.report")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials that the command line, `arguments`, selects; return 1 if a case failed, otherwise 0."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument(
        "--only", nargs="+", choices=[trial.name for trial in TRIALS], help="trials to run; default: all"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed of the cases; default: 0")
    options = parser.parse_args(arguments)
    settings = {"seed": options.seed, "quick": options.quick, "source": source_hash(TESTED_MODULES)[:16]}
    known = results.stored(options.out or (None if options.quick else reporting.RESULTS / "faults.json"), settings)
    with TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        rows = run(Path(folder), options.only, options.quick, options.seed, known)
        stored = reporting.run_and_store("faults", options, settings, rows, results.tables)
    failures = [f"{row['trial']}: {failure}" for row in stored["rows"] for failure in row["failures"]]
    print("", *failures, sep="\n")
    return int(bool(failures))


def run(folder: Path, only: list[str] | None, quick: bool, seed: int, known: dict[str, Json]) -> Iterator[Json]:
    """Run the trials in `only` (all if it is None), and yield the rows so far, one for each trial.

    `folder` is shared by all trials; `seed` is the random seed of the cases, of which there are fewer if `quick`.
    `known` has rows of an earlier run, by trial: complete trials are not run again unless `only` names them.
    """
    rows = dict(known)
    for trial in [trial for trial in TRIALS if trial.name in (only or [trial.name])]:
        size = trial.quick if quick else trial.size
        if only and rows.get(trial.name, {}).get("tried") == size:
            del rows[trial.name]
        for row in results.run(trial, folder, size, seed, rows.get(trial.name)):
            rows[trial.name] = row
            yield {"rows": [rows[one.name] for one in TRIALS if one.name in rows]}
        reporting.note(f"{trial.name}: {row['tried']:,} tried, {row['failed']:,} failed, {row['seconds']:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
