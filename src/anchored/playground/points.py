"""Points that a page holds: presets, and checks of what a page sends."""

from collections.abc import Mapping

import numpy as np

from anchored import checks
from anchored.errors import ArgumentError

MAX_POINTS = 200  # largest number of points on a page
X_RANGE, Y_RANGE = (-3.0, 3.0), (-3.0, 3.0)  # what a page shows
MAX_SIZE = 100.0  # largest absolute value of a coordinate
# The points of figure 1; see `paper.experiments.six_points`
SIX_POINTS = ((-1.5, -0.7), (-1.1, 0.1), (-0.6, 0.9), (0.7, -0.4), (1.0, -0.9), (1.6, 0.3))

Points = np.ndarray  # (points, columns), in float64


def checked(columns: Mapping[str, object], names: tuple[str, ...] = ("x", "y"), most: int = MAX_POINTS) -> Points:
    """Return columns of numbers as points, (points, columns), or raise an ArgumentError that a page can show.

    Parameters
    ----------
    columns : mapping of str to sequence
        What a page has sent. Other columns than those in `names` are ignored.
    names : tuple of str
        The columns of a point.
    most : int
        Largest number of points allowed.
    """
    values = [_column(columns.get(name), name, most) for name in names]
    if len({len(column) for column in values}) > 1:
        raise ArgumentError("points", f"must have as many values of {names[0]} as of {names[-1]}")
    return np.column_stack(values)


def _column(column: object, name: str, most: int) -> np.ndarray:
    """Return the checked values of one column, (points,)."""
    if not isinstance(column, list | tuple | np.ndarray) or (isinstance(column, np.ndarray) and column.ndim != 1):
        raise ArgumentError("points", f"must have a list of numbers as {name}")
    if len(column) > most:
        raise ArgumentError("points", f"must be at most {most}, got {len(column):,}")
    if not all(checks.is_real(value) and abs(float(value)) <= MAX_SIZE for value in column):
        raise ArgumentError("points", f"must have finite numbers between -{MAX_SIZE:g} and {MAX_SIZE:g} as {name}")
    return np.asarray(column, np.float64)


def parsed(text: object, names: tuple[str, ...] = ("x", "y")) -> Points:
    """Return the points written in `text`, one on each line, shape (points, columns); the first line may be `names`."""
    if not isinstance(text, str) or len(text) > 100 * MAX_POINTS:
        raise ArgumentError("points", f"must be text with at most {MAX_POINTS} lines")
    rows = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.replace(",", " ").replace(";", " ").split()
        if not fields or (number == 1 and tuple(fields) == names):
            continue
        try:
            row = [float(field) for _, field in zip(names, fields, strict=True)]
        except ValueError:
            expected = f"{', '.join(names)} on each line"
            raise ArgumentError("points", f"must have {expected}; line {number} is {line[:40]!r}") from None
        rows.append(row)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    return checked(dict(zip(names, columns, strict=True)), names)


def written(points: Points) -> str:
    """Return `points` as text that `parsed` reads."""
    return "\n".join(", ".join(f"{value:.4g}" for value in point) for point in points)


def _gap() -> Points:
    """Return noisy points of a sine, with a gap in the middle."""
    rng = np.random.default_rng(1)
    x = np.concatenate([np.linspace(-2.4, -0.9, 10), np.linspace(0.9, 2.4, 10)])
    return np.column_stack([x, np.sin(1.6 * x) + 0.1 * rng.standard_normal(len(x))])


def _step() -> Points:
    """Return points of a step function."""
    x = np.linspace(-2.2, 2.2, 12)
    return np.column_stack([x, np.where(x < 0, -1.0, 1.0)])


def _growing_noise() -> Points:
    """Return points of a sine with noise that grows with x."""
    rng = np.random.default_rng(2)
    x = np.linspace(-2.4, 2.4, 30)
    return np.column_stack([x, 0.6 * np.sin(1.5 * x) + (0.03 + 0.14 * (x + 2.4)) * rng.standard_normal(len(x))])


def _outlier() -> Points:
    """Return points on a line, except for one."""
    x = np.linspace(-2.2, 2.2, 11)
    y = 0.5 * x
    y[5] = 2.6
    return np.column_stack([x, y])


PRESETS = {  # points by the name of the preset
    "Six points": np.array(SIX_POINTS),
    "A gap": _gap(),
    "A step": _step(),
    "Noise that grows": _growing_noise(),
    "An outlier": _outlier(),
}
