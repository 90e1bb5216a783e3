"""The history of a run: return, length and exploring steps of each episode, in the order in which they ended."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np


class Steps(NamedTuple):
    """The steps of one or several rollouts, each array (steps,)."""

    reward: np.ndarray  # as the environment returned it
    done: np.ndarray  # whether the step was the last of its episode
    explored: np.ndarray  # whether the action counted as exploration
    env_index: np.ndarray | None = None  # the environment of each step, ascending among steps taken at once


class EpisodeSummary(NamedTuple):
    """One episode, or the part of the current episode so far."""

    episode_return: float = 0.0  # undiscounted sum of rewards
    length: int = 0  # number of steps
    explored: int = 0  # number of steps that counted as exploration

    def plus(self, other: "EpisodeSummary") -> "EpisodeSummary":
        """Return the summary of two parts of one episode: this one and `other`."""
        explored = self.explored + other.explored
        return EpisodeSummary(self.episode_return + other.episode_return, self.length + other.length, explored)


_NO_STEPS = EpisodeSummary()


class History:
    """The finished episodes of a run, and the current episode of each environment.

    `record` does not change this history; it returns a new one that shares memory with it. Calling `record` again on
    the same history invalidates every history recorded from it before, so keep only one successor.

    Parameters
    ----------
    returns
        Undiscounted sum of rewards of each finished episode.
    lengths
        Number of steps of each finished episode.
    explored
        Number of steps of each finished episode that counted as exploration.
    currents
        The current episode so far, of each environment.
    """

    def __init__(
        self,
        returns: Sequence[float] = (),
        lengths: Sequence[int] = (),
        explored: Sequence[int] = (),
        currents: Sequence[EpisodeSummary] = (_NO_STEPS,),
    ):
        self._columns: tuple[list, list, list] = list(returns), list(lengths), list(explored)
        self._n_finished = len(returns)
        self.currents = tuple(currents)

    @property
    def current(self) -> EpisodeSummary:
        """The current episode so far, of the first environment if there are several."""
        return self.currents[0]

    @property
    def returns(self) -> list[float]:
        """The sum of rewards of each finished episode."""
        return self._columns[0][: self._n_finished]

    @property
    def lengths(self) -> list[int]:
        """The number of steps of each finished episode."""
        return self._columns[1][: self._n_finished]

    @property
    def explored(self) -> list[int]:
        """The number of steps of each finished episode that counted as exploration."""
        return self._columns[2][: self._n_finished]

    def record(
        self, reward: np.ndarray, done: np.ndarray, explored: np.ndarray, env_index: np.ndarray | None = None
    ) -> Self:
        """Return the history with further steps appended.

        Parameters
        ----------
        reward
            Reward of each step, (steps,), in order.
        done
            Whether the step was the last of its episode, (steps,).
        explored
            Whether the step counted as exploration, (steps,).
        env_index
            Which environment the step belongs to, (steps,); None if there is only one.
        """
        if env_index is None:
            finished, *currents = _record_one(self.current, reward, done, explored)
        else:
            finished, currents = self._record_several(reward, done, explored, env_index)
        for column, values in zip(
            self._columns, zip(*finished, strict=True), strict=False
        ):  # nothing if no episode finished
            column[self._n_finished :] = values  # overwrites episodes of a later history that was discarded
        return self._with(self._n_finished + len(finished), currents)

    def without_current(self, n_envs: int = 1) -> Self:
        """Return the finished episodes, with a current episode of no steps for each of `n_envs` environments."""
        return self._with(self._n_finished, [_NO_STEPS] * n_envs)

    def __eq__(self, other: object) -> bool:
        names = ("returns", "lengths", "explored", "currents")
        return isinstance(other, History) and all(getattr(self, name) == getattr(other, name) for name in names)

    __hash__ = None  # type: ignore[assignment]

    def _record_several(
        self, reward: np.ndarray, done: np.ndarray, explored: np.ndarray, env_index: np.ndarray
    ) -> tuple[list[EpisodeSummary], list[EpisodeSummary]]:
        """Return the episodes that finished in these steps, and the current ones; arguments as in `record`."""
        currents: list[EpisodeSummary] = []
        ended: list[tuple[int, EpisodeSummary]] = []
        for i, before in enumerate(self.currents):
            steps = np.flatnonzero(env_index == i)
            episodes, current = _record_one(before, reward[steps], done[steps], explored[steps])
            currents.append(current)
            ended += zip(steps[done[steps]].tolist(), episodes, strict=True)
        return [episode for _, episode in sorted(ended)], currents

    def _with(self, n_finished: int, currents: Sequence[EpisodeSummary]) -> Self:
        """Return a history with the same columns, `n_finished` finished episodes and the current ones `currents`."""
        history = type(self)(currents=currents)
        history._columns, history._n_finished = self._columns, n_finished
        return history


def _record_one(
    current: EpisodeSummary, reward: np.ndarray, done: np.ndarray, explored: np.ndarray
) -> tuple[list[EpisodeSummary], EpisodeSummary]:
    """Continue the episode `current` with steps of one environment; return the finished episodes and the current one.

    The arrays are as in `History.record`.
    """
    ends = np.flatnonzero(done) + 1
    starts = np.concatenate([[0], ends]).astype(int)
    finished = []
    for start, end in zip(starts, [*ends, len(reward)], strict=True):
        part = slice(start, end)
        total = float(reward[part].sum(dtype=np.float64))
        current = current.plus(EpisodeSummary(total, int(end - start), int(explored[part].sum())))
        if end > start and done[end - 1]:
            finished.append(current)
            current = _NO_STEPS
    return finished, current
