"""Convert the history of a run and its evaluations to named arrays and back, with every number checked."""

import numpy as np
from numpy.typing import ArrayLike

from anchored.rl.history import EpisodeSummary, History
from anchored.storage.headers import StorageError

Arrays = dict[str, np.ndarray]
Evaluations = list[tuple[int, list[float]]]  # (number of steps before it, returns of its episodes)

HISTORY = ("history/returns", "history/lengths", "history/explored")
EVALUATIONS = ("evaluations/steps", "evaluations/counts", "evaluations/returns")


def to_arrays(history: History, evaluations: Evaluations) -> Arrays:
    """Return `history` and `evaluations` as named arrays, one for each column."""
    columns = {
        "history/returns": (history.returns, np.float64),
        "history/lengths": (history.lengths, np.int64),
        "history/explored": (history.explored, np.int64),
        "history/current": (history.currents, np.float64),
        "evaluations/steps": ([step for step, _ in evaluations], np.int64),
        "evaluations/counts": ([len(returns) for _, returns in evaluations], np.int64),
        "evaluations/returns": ([total for _, returns in evaluations for total in returns], np.float64),
    }
    return {name: np.asarray(column, dtype) for name, (column, dtype) in columns.items()}


def history_from_arrays(arrays: Arrays, n_steps: int, n_episodes: int, n_current: list[int] | None) -> History:
    """Return the history that `to_arrays` stored in `arrays`; raise a StorageError if it does not fit the counters.

    The run has `n_steps` steps and `n_episodes` finished episodes; the current episode of each environment has
    `n_current` steps, None if unknown.
    """
    returns, lengths, explored = (arrays[name] for name in HISTORY)
    for name in HISTORY:
        refuse_where(len(arrays[name]) != n_episodes, name, f"does not have {n_episodes} entries")
    refuse_where(
        (lengths < 1) | (lengths > n_steps), "history/lengths", f"holds numbers that are not between 1 and {n_steps}"
    )
    refuse_where(explored > lengths, "history/explored", "holds more steps than the episodes have")
    currents = [_current(row, i, n_current) for i, row in enumerate(arrays["history/current"].tolist())]
    n_all = int(lengths.sum()) + sum(current.length for current in currents)
    refuse_where(n_all > n_steps, "history/lengths", f"sums to more than the number of steps, {n_steps}")
    return History(returns.tolist(), lengths.tolist(), explored.tolist(), currents)


def _current(row: list[float], env_index: int, n_current: list[int] | None) -> EpisodeSummary:
    """Return the current episode of one environment, stored as `row`; `n_current` is that of `history_from_arrays`."""
    total, length, n_explored = row
    if n_current is not None:
        expected = n_current[env_index]
        refuse_where(length != expected, "history/current", f"is not {expected} steps long")
    refuse_where(length != int(length) or length < 0, "history/current", "holds an impossible number of steps")
    refuse_where(
        n_explored != int(n_explored) or not 0 <= n_explored <= length,
        "history/current",
        "holds an impossible number of exploring steps",
    )
    return EpisodeSummary(total, int(length), int(n_explored))


def evaluations_from_arrays(arrays: Arrays, n_steps: int) -> Evaluations:
    """Return the evaluations that `to_arrays` stored in `arrays`, of a run of `n_steps` steps.

    Raises a StorageError if they contradict each other.
    """
    steps, counts, returns = (arrays[name] for name in EVALUATIONS)
    unsorted = (np.diff(steps) < 0).any() or ((steps < 1) | (steps > n_steps)).any()
    refuse_where(unsorted, "evaluations/steps", f"is not ascending, or not between 1 and {n_steps}")
    refuse_where(len(counts) != len(steps), "evaluations/counts", "does not have as many entries as evaluations/steps")
    refuse_where((counts < 1) | (counts > len(returns)), "evaluations/counts", "holds impossible numbers of returns")
    refuse_where(
        int(counts.sum()) != len(returns),
        "evaluations/returns",
        "does not have as many entries as the sum of evaluations/counts",
    )
    parts = np.split(returns, np.cumsum(counts)[:-1]) if len(counts) else []
    return [(step, part.tolist()) for step, part in zip(steps.tolist(), parts, strict=True)]


def refuse_where(wrong: ArrayLike, name: str, why: str) -> None:
    """Raise a StorageError if any entry of `wrong` is true; its message is "array `name` `why`"."""
    if np.any(wrong):
        raise StorageError(f"array {name!r} {why}")
