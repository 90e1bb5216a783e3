"""The history of a run, episode by episode."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np


class EpisodeSummary(NamedTuple):
    """One episode, or its part so far."""

    episode_return: float = 0.0  # sum of rewards, not discounted
    length: int = 0  # steps
    explored: int = 0  # steps that counted as exploration

    def plus(self, other: "EpisodeSummary") -> "EpisodeSummary":
        """The two parts of an episode together."""
        explored = self.explored + other.explored
        return EpisodeSummary(self.episode_return + other.episode_return, self.length + other.length, explored)


_NO_STEPS = EpisodeSummary()


class History:
    """Finished episodes, and the current one.

    `record` returns a new history and leaves the old one as it was, though the two share memory.

    Parameters
    ----------
    returns
        Of the finished episodes: sums of rewards.
    lengths
        Their steps.
    explored
        How many of these steps counted as exploration.
    current
        The same of the current episode so far.
    """

    def __init__(
        self,
        returns: Sequence[float] = (),
        lengths: Sequence[int] = (),
        explored: Sequence[int] = (),
        current: EpisodeSummary = _NO_STEPS,
    ):
        self._columns: tuple[list, list, list] = list(returns), list(lengths), list(explored)
        self._n_finished = len(returns)
        self.current = current

    @property
    def returns(self) -> list[float]:
        """The sum of rewards of each finished episode."""
        return self._columns[0][: self._n_finished]

    @property
    def lengths(self) -> list[int]:
        """The steps of each finished episode."""
        return self._columns[1][: self._n_finished]

    @property
    def explored(self) -> list[int]:
        """The steps of each finished episode that counted as exploration."""
        return self._columns[2][: self._n_finished]

    def record(self, reward: np.ndarray, done: np.ndarray, explored: np.ndarray) -> Self:
        """The history with more steps: their rewards, whether each ended its episode, and whether it explored.

        All three are (steps,), in order.
        """
        ends = np.flatnonzero(done) + 1
        starts = np.concatenate([[0], ends]).astype(int)
        current, finished = self.current, []
        for start, end in zip(starts, [*ends, len(reward)], strict=True):
            here = slice(start, end)
            total = float(reward[here].sum(dtype=np.float64))
            current = current.plus(EpisodeSummary(total, int(end - start), int(explored[here].sum())))
            if end > start and done[end - 1]:
                finished.append(current)
                current = _NO_STEPS
        for column, values in zip(self._columns, zip(*finished, strict=True), strict=False):
            column[self._n_finished :] = values  # replaces what was recorded, but not kept
        return self._with(self._n_finished + len(finished), current)

    def without_current(self) -> Self:
        """The finished episodes alone, at the start of a new one."""
        return self._with(self._n_finished, _NO_STEPS)

    def __eq__(self, other: object) -> bool:
        names = ("returns", "lengths", "explored", "current")
        return isinstance(other, History) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def _with(self, n_finished: int, current: EpisodeSummary) -> Self:
        other = type(self)(current=current)
        other._columns, other._n_finished = self._columns, n_finished
        return other
