"""How time and memory grow with rows, columns, members, width and processes, and what very large fits would cost.

    python benchmarks/scaling.py                       everything
    python benchmarks/scaling.py --quick               small sizes
    python benchmarks/scaling.py --axes rows members   some axes

Each measurement is a new process that fits twice: once to compile, and once more to measure the time. All settings are
given, so that a fit only trains. The slope is that of log(time) against log(size) between the two largest sizes.
"""

import argparse
import math
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import reporting
from reporting import Json, number, seconds_of

COMMAND = "python benchmarks/scaling.py"
MAX_SLOPE = 1.05  # goal, for rows and members
READ_RATE = 1e9  # bytes per second that storage is assumed to deliver
NETWORK_RATE = 1.25e9  # bytes per second of a network of 10 Gbit/s


class Work(NamedTuple):
    """The size of a fit or of a prediction."""

    rows: int = 10_000
    columns: int = 10
    members: int = 10
    width: int = 50  # units of the only hidden layer
    epochs: int = 5  # 0: predict instead, with a model of a thousand rows
    batch: int = 500
    processes: int = 1

    @property
    def multiply_adds(self) -> float:
        """Number of multiply-adds of all matrix products: two backward products for each forward product."""
        n_weights = self.width * (self.columns + 1)
        return 3.0 * max(1 / 3, self.epochs) * self.rows * self.members * n_weights


class Axis(NamedTuple):
    """A size that is varied, while all others stay as they are."""

    what: str
    name: str  # of the field of Work
    sizes: dict[bool, tuple[int, ...]]  # by whether the run is quick
    others: Work
    max_slope: float | None = None


AXES = {
    "rows": Axis(
        "fit: rows", "rows", {False: tuple(10**k for k in range(3, 8)), True: (100, 1000)}, Work(epochs=1), MAX_SLOPE
    ),
    "predicted_rows": Axis(
        "predict: rows", "rows", {False: tuple(10**k for k in range(3, 8)), True: (100, 1000)}, Work(epochs=0)
    ),
    "columns": Axis("fit: columns", "columns", {False: (1, 10, 100, 1000), True: (1, 10)}, Work()),
    "members": Axis(
        "fit: members",
        "members",
        {False: (1, 10, 100, 1000, 10_000), True: (1, 10)},
        Work(rows=1000, batch=100),
        MAX_SLOPE,
    ),
    "width": Axis("fit: units", "width", {False: (10, 30, 100, 300, 1000), True: (10, 30)}, Work()),
    "processes": Axis("fit: processes", "processes", {False: (1, 2), True: (1,)}, Work(members=200)),
}


def measure(work: Work) -> tuple[float, float]:
    """Return the seconds of a fit or prediction, and the megabytes by which its peak exceeds the memory before."""
    from anchored import AnchoredRegressor

    rng = np.random.default_rng(0)
    X = rng.standard_normal((work.rows, work.columns), np.float32)
    y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(work.rows, np.float32)
    settings = {"hidden_layer_sizes": (work.width,), "input_encoding": "standard", "noise_variance": 0.1}
    settings |= {"prior_scale": 2.0, "max_iter": max(1, work.epochs), "batch_size": work.batch, "random_state": 0}
    model = AnchoredRegressor(work.members, n_jobs=work.processes, **settings)
    n_first = min(work.rows, 1000) if work.epochs == 0 else work.rows
    model.fit(X[:n_first], y[:n_first])
    if work.epochs == 0:
        model.predict(X)
    before = reporting.memory_now()
    seconds = seconds_of(lambda: model.predict(X) if work.epochs == 0 else model.fit(X, y))
    return seconds, (reporting.memory_peak() - before) / 1e6


def run_child(work: Work) -> tuple[float, float]:
    """Return what `measure` returns in a new process."""
    command = [sys.executable, __file__, "--child", *map(str, work)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, megabytes = map(float, done.stdout.split()[-2:])
    return seconds, megabytes


def run(axes: Sequence[str], quick: bool) -> Iterator[Json]:
    """Yield the measurements so far, by axis: a list of size, seconds, megabytes and multiply-adds."""
    points: dict[str, list[list[float]]] = {}
    for name in axes:
        axis = AXES[name]
        points[name] = []
        for size in axis.sizes[quick]:
            work = axis.others._replace(**{axis.name: size})
            points[name].append([size, *run_child(work), work.multiply_adds])
            reporting.note(f"{axis.what} {size:,}: {points[name][-1][1]:.3f} s")
            yield {"points": points}


def slope(points: Sequence[Sequence[float]], column: int = 1) -> float:
    """Return the slope of the logarithm of a `column` of `points` against that of the size, at the large end."""
    (size, *_), (larger, *_) = points[-2:]
    return math.log(points[-1][column] / points[-2][column]) / math.log(larger / size)


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the measurements, and that of the costs of fits that are larger than any of them."""
    lines = []
    for name, points in stored["points"].items():
        axis = AXES[name]
        sizes = ", ".join(f"{point[0]:,}" for point in points)
        seconds = ", ".join(f"{point[1]:.3g}" for point in points)
        megabytes = ", ".join(f"{point[2]:,.0f}" for point in points)
        shown = ""
        if len(points) > 1:
            goal = "" if axis.max_slope is None else f" (goal ≤ {axis.max_slope:g})"
            shown = f"{number(slope(points), 2)}{goal}"
        lines.append((axis.what, sizes, seconds, shown, megabytes))
    header = ("varied", "sizes", "seconds", "slope at the large end", "MB at the peak, above the input")
    suffix = "" if stored["machine"]["device"] == "cpu" else "_gpu"
    table = reporting.table(stored, COMMAND, header, lines)
    return {f"scaling{suffix}": table, f"large_fits{suffix}": large_fits(stored)}


def large_fits(stored: Json) -> str:
    """Return the table of what 10⁹ rows and 10⁵ members would cost on the machine of `stored`, with the arithmetic."""
    lines = []
    for name, size, label in (("rows", 10**9, "10⁹ rows, one epoch, 10 members"), ("members", 10**5, "10⁵ members")):
        if not stored["points"].get(name):
            continue
        largest, seconds, _, multiply_adds = stored["points"][name][-1]
        factor = size / largest
        work = AXES[name].others._replace(**{AXES[name].name: size})
        data = 4.0 * work.rows * (work.columns + 1)
        members = 4.0 * work.members * (work.width * (work.columns + 2) + 1)
        lines.append(
            (
                label,
                f"{seconds:.3g} s × {factor:,.0f} = {_duration(seconds * factor)}",
                f"{multiply_adds * factor:.2g} ÷ {multiply_adds / seconds:.2g} per second",
                _moved(data, READ_RATE),
                _moved(data, NETWORK_RATE),
                _moved(members, NETWORK_RATE),
            )
        )
    header = (
        "fit", "training, on this machine", "multiply-adds ÷ measured rate", "rows, read once at 1 GB/s",
        "rows, sent to a worker at 10 Gbit/s", "members, sent back",
    )  # fmt: skip
    return reporting.table(stored, COMMAND, header, lines)


def _moved(n_bytes: float, rate: float) -> str:
    """Return a number of bytes, and how long it takes to move them at a `rate`."""
    unit, size = next((unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)) if n_bytes >= size)
    seconds = n_bytes / rate
    return f"{n_bytes / size:.3g} {unit}: {_duration(seconds) if seconds >= 1e-3 else 'less than 1 ms'}"


def _duration(seconds: float) -> str:
    """Return `seconds` in a unit that suits them."""
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s"


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the options in `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--child", nargs=len(Work._fields), type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        warnings.simplefilter("ignore")
        print(*measure(Work(*options.child)))
        return {}
    results = run(options.axes, options.quick)
    return reporting.run_and_store("scaling", options, {"quick": options.quick}, results, tables)


if __name__ == "__main__":
    main()
