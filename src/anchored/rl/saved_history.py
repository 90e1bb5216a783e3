"""The history of a run and its evaluations as named arrays, and back, with every number checked."""

import numpy as np
from numpy.typing import ArrayLike

from anchored.rl.history import EpisodeSummary, History
from anchored.storage.headers import StorageError

Arrays = dict[str, np.ndarray]
Evaluations = list[tuple[int, list[float]]]  # the number of steps before each, and the returns of its episodes

HISTORY = ("history/returns", "history/lengths", "history/explored")
EVALUATIONS = ("evaluations/steps", "evaluations/counts", "evaluations/returns")


def to_arrays(history: History, evaluations: Evaluations) -> Arrays:
    """One array for each column, since there may be millions of episodes."""
    columns = {
        "history/returns": (history.returns, np.float64),
        "history/lengths": (history.lengths, np.int64),
        "history/explored": (history.explored, np.int64),
        "history/current": (history.current, np.float64),
        "evaluations/steps": ([step for step, _ in evaluations], np.int64),
        "evaluations/counts": ([len(returns) for _, returns in evaluations], np.int64),
        "evaluations/returns": ([total for _, returns in evaluations for total in returns], np.float64),
    }
    return {name: np.asarray(column, dtype) for name, (column, dtype) in columns.items()}


def history_from_arrays(arrays: Arrays, n_steps: int, n_episodes: int, n_current: int) -> History:
    """The history that `to_arrays` stored; a StorageError if it does not fit the counters.

    The run has `n_steps` steps and `n_episodes` finished episodes; its current episode has `n_current` steps.
    """
    returns, lengths, explored = (arrays[name] for name in HISTORY)
    for name in HISTORY:
        refuse_where(len(arrays[name]) != n_episodes, name, f"does not have {n_episodes} entries")
    refuse_where((lengths < 1) | (lengths > n_steps), "history/lengths", f"is not between 1 and {n_steps}")
    refuse_where(int(lengths.sum()) + n_current > n_steps, "history/lengths", f"is more than {n_steps} steps")
    refuse_where(explored > lengths, "history/explored", "holds more steps than the episodes have")
    total, length, some = arrays["history/current"].tolist()
    refuse_where(length != n_current, "history/current", f"is not {n_current} steps long")
    refuse_where(some != int(some) or not 0 <= some <= length, "history/current", "holds no number of steps")
    current = EpisodeSummary(total, int(length), int(some))
    return History(returns.tolist(), lengths.tolist(), explored.tolist(), current)


def evaluations_from_arrays(arrays: Arrays, n_steps: int) -> Evaluations:
    """The evaluations that `to_arrays` stored in a run of `n_steps` steps; a StorageError if they are inconsistent."""
    steps, counts, returns = (arrays[name] for name in EVALUATIONS)
    unsorted = (np.diff(steps) < 0).any() or ((steps < 1) | (steps > n_steps)).any()
    refuse_where(unsorted, "evaluations/steps", f"does not ascend from 1 to {n_steps}")
    refuse_where(len(counts) != len(steps), "evaluations/counts", "does not have as many entries as evaluations/steps")
    refuse_where((counts < 1) | (counts > len(returns)), "evaluations/counts", "holds impossible numbers of returns")
    refuse_where(int(counts.sum()) != len(returns), "evaluations/returns", "is not as long as evaluations/counts say")
    parts = np.split(returns, np.cumsum(counts)[:-1]) if len(counts) else []
    return [(step, part.tolist()) for step, part in zip(steps.tolist(), parts, strict=True)]


def refuse_where(wrong: ArrayLike, name: str, why: str) -> None:
    """Raise a StorageError for the array `name` if any entry of `wrong` is true; `why` completes the sentence."""
    if np.any(wrong):
        raise StorageError(f"array {name!r} {why}")
