"""Learning curves over seeds: interquartile means with bootstrap intervals (Agarwal et al. 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from anchored.plots import LINE, Display, finish
from anchored.rl.history import History


def returns_by_step(histories: Sequence[History], n_points: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the mean return of the episodes that ended in the stretch before each, (seeds, points).

    Where no episode ended in a stretch, the last one before it counts (or the first there is). All runs are cut where
    the shortest ends.
    """
    ends = [np.cumsum(history.lengths) for history in histories]
    if any(len(end) == 0 for end in ends):
        raise ValueError("a run has no finished episode, so it has no curve: let it learn for longer")
    steps = np.linspace(0, min(end[-1] for end in ends), n_points + 1)[1:]
    curves = np.empty((len(histories), n_points))
    for row, end, history in zip(curves, ends, histories, strict=True):
        stops = np.searchsorted(end, steps, side="right")
        starts = np.concatenate([[0], stops[:-1]])
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            window = history.returns[start:stop] or history.returns[max(stop - 1, 0) : max(stop, 1)]
            row[i] = np.mean(window)
    return steps, curves


def interquartile_mean(curves: np.ndarray) -> np.ndarray:
    """The mean over seeds of the middle half: neither one lucky seed nor one lost one decides."""
    return stats.trim_mean(curves, 0.25, axis=0)


def bootstrap_interval(
    curves: np.ndarray, coverage: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Of the interquartile mean, by drawing seeds anew: percentiles at each point."""
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(curves), (n_resamples, len(curves)))
    means = stats.trim_mean(curves[drawn], 0.25, axis=1)
    lower, upper = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
    return lower, upper


@dataclass(eq=False)
class LearningCurveDisplay(Display):
    """Returns of several seeds as they learn: each, their interquartile mean, and its bootstrap interval."""

    steps: np.ndarray  # (points,)
    returns: np.ndarray  # (seeds, points)
    coverage: float = 0.95

    @classmethod
    def from_agents(cls, agents: Any, *, n_points: int = 50, ax: Any = None, **kwargs: Any) -> "LearningCurveDisplay":
        """Of agents that differ in their seeds."""
        steps, returns = returns_by_step([agent.history for agent in agents], n_points)
        return cls(steps, returns).plot(ax, **kwargs)

    def plot(self, ax: Any = None, **kwargs: Any) -> "LearningCurveDisplay":
        """Draw; `kwargs` go to the line of the interquartile mean."""
        ax = self.begin(ax)
        style = {"color": LINE, "label": f"interquartile mean of {len(self.returns)} seeds", **kwargs}
        lower, upper = bootstrap_interval(self.returns, self.coverage)
        ax.fill_between(
            self.steps,
            lower,
            upper,
            color=style["color"],
            alpha=0.2,
            linewidth=0,
            label=f"{self.coverage:.0%} bootstrap",
        )
        ax.plot(self.steps, self.returns.T, color=style["color"], alpha=0.3, linewidth=0.7)
        ax.plot(self.steps, interquartile_mean(self.returns), **style)
        ax.set(xlabel="steps", ylabel="return of an episode")
        return finish(self)
