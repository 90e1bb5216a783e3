"""Learning curves over seeds: interquartile means with bootstrap intervals (Agarwal et al. 2021)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from scipy import stats

from anchored.plots import LINE, Display, finish
from anchored.rl.history import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class HasHistory(Protocol):
    """Anything with a history of episodes, such as a `QEnsembleAgent`."""

    @property
    def history(self) -> History:
        """The episodes so far."""


def returns_by_step(histories: Sequence[History], n_points: int = 50) -> tuple[np.ndarray, np.ndarray]:
    """Compute the return as a function of the number of steps.

    Parameters
    ----------
    histories
        One history for each run. All are cut at the length of the shortest.
    n_points
        Number of points at which the return is computed.

    Returns
    -------
    tuple
        Number of steps at each point, (n_points,), and mean return of the episodes that ended between the previous
        point and this one, (histories, n_points). If no episode ended there, it is the return of the latest episode
        before, or of the first episode of the run.
    """
    ends = [np.cumsum(history.lengths) for history in histories]  # the number of steps after each episode
    if any(len(episode_ends) == 0 for episode_ends in ends):
        raise ValueError("a run has no finished episode, so it has no learning curve: train it for longer")
    steps = np.linspace(0, min(episode_ends[-1] for episode_ends in ends), n_points + 1)[1:]
    curves = np.empty((len(histories), n_points))
    for row, episode_ends, history in zip(curves, ends, histories, strict=True):
        stops = np.searchsorted(episode_ends, steps, side="right")
        starts = np.concatenate([[0], stops[:-1]])
        for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
            window = history.returns[start:stop] or history.returns[max(stop - 1, 0) : max(stop, 1)]
            row[i] = np.mean(window)
    return steps, curves


def interquartile_mean(curves: np.ndarray) -> np.ndarray:
    """Return the mean over the middle half of the seeds, (points,), of `curves`, (seeds, points).

    It is robust to single seeds that are exceptionally good or bad.
    """
    return stats.trim_mean(curves, 0.25, axis=0)


def bootstrap_interval(
    curves: np.ndarray, coverage: float = 0.95, n_resamples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Compute a percentile bootstrap interval for the interquartile mean.

    Parameters
    ----------
    curves
        Returns, (seeds, points).
    coverage
        Nominal probability that the interval contains the interquartile mean.
    n_resamples
        Number of times that the seeds are resampled with replacement.
    seed
        Random seed of the resampling.

    Returns
    -------
    tuple
        Lower and upper ends, (points,) each.
    """
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, len(curves), (n_resamples, len(curves)))
    means = stats.trim_mean(curves[drawn], 0.25, axis=1)
    lower, upper = np.quantile(means, [(1 - coverage) / 2, (1 + coverage) / 2], axis=0)
    return lower, upper


@dataclass(eq=False)
class LearningCurveDisplay(Display):
    """Learning curves of several seeds, with their interquartile mean and its bootstrap interval."""

    steps: np.ndarray  # (points,), number of steps since the start of training
    returns: np.ndarray  # (seeds, points), mean return of an episode
    coverage: float = 0.95  # of the bootstrap interval

    @classmethod
    def from_agents(
        cls, agents: Sequence[HasHistory], *, n_points: int = 50, ax: "Axes | None" = None, **kwargs: object
    ) -> Self:
        """Draw the curves of `agents`, which differ only in their seeds, at `n_points` points.

        `ax` and `kwargs` are passed to `plot`. Returns the display.
        """
        steps, returns = returns_by_step([agent.history for agent in agents], n_points)
        return cls(steps, returns).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: object) -> Self:
        """Draw into `ax`, or into new axes if it is None, and return the display.

        `kwargs` are passed to the `ax.plot` of the interquartile mean.
        """
        ax = self.set_axes(ax)
        style = {"color": LINE, "label": f"interquartile mean of {len(self.returns)} seeds", **kwargs}
        lower, upper = bootstrap_interval(self.returns, self.coverage)
        ax.fill_between(
            self.steps,
            lower,
            upper,
            color=style["color"],
            alpha=0.2,
            linewidth=0,
            label=f"{self.coverage:.0%} bootstrap interval",
        )
        ax.plot(self.steps, self.returns.T, color=style["color"], alpha=0.3, linewidth=0.7)
        ax.plot(self.steps, interquartile_mean(self.returns), **style)  # type: ignore[arg-type]
        ax.set(xlabel="steps", ylabel="return of an episode")
        return finish(self)
