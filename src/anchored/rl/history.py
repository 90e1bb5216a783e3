"""What an agent has lived through, episode by episode."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

NOTHING = (0.0, 0, 0)


class History:
    """Finished episodes, and the one under way: its return, length and explored steps so far.

    `record` gives a new history and leaves the old one as it was, though they share their memory.
    """

    def __init__(
        self,
        returns: Sequence[float] = (),
        lengths: Sequence[int] = (),
        explored: Sequence[int] = (),
        under_way: Sequence[float] = NOTHING,
    ):
        self._columns: tuple[list, list, list] = list(returns), list(lengths), list(explored)
        self._n_finished = len(returns)
        self.under_way = tuple(under_way)

    @property
    def returns(self) -> list[float]:
        return self._columns[0][: self._n_finished]

    @property
    def lengths(self) -> list[int]:
        return self._columns[1][: self._n_finished]

    @property
    def explored(self) -> list[int]:
        """Steps of each episode that counted as exploration."""
        return self._columns[2][: self._n_finished]

    def record(self, reward: np.ndarray, last: np.ndarray, explored: np.ndarray) -> Self:
        """Steps in order, each with its reward, whether it was its episode's last, and whether it explored."""
        ends = np.flatnonzero(last) + 1
        starts = np.concatenate([[0], ends]).astype(int)
        under_way, finished = self.under_way, []
        for start, end in zip(starts, [*ends, len(reward)], strict=True):
            here = slice(start, end)
            happened = float(reward[here].sum(dtype=np.float64)), int(end - start), int(explored[here].sum())
            under_way = tuple(sum(pair) for pair in zip(under_way, happened, strict=True))
            if end > start and last[end - 1]:
                finished.append(under_way)
                under_way = NOTHING
        for column, values in zip(self._columns, zip(*finished, strict=True), strict=False):
            column[self._n_finished :] = values  # over what was recorded, but not kept
        return self._with(self._n_finished + len(finished), under_way)

    def begin_again(self) -> Self:
        """Without the episode under way."""
        return self._with(self._n_finished, NOTHING)

    def as_dict(self) -> dict[str, Any]:
        """The arguments that make it again."""
        return {name: getattr(self, name) for name in ("returns", "lengths", "explored", "under_way")}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.as_dict() == other.as_dict()

    __hash__ = None  # type: ignore[assignment]

    def _with(self, n_finished: int, under_way: tuple) -> Self:
        other = type(self)(under_way=under_way)
        other._columns, other._n_finished = self._columns, n_finished
        return other
