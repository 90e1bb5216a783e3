"""Statistics of the CartPole study, on which its claims and tables are based.

A curve is a run's reward per episode, averaged over the windows of the study. A window is late if it is among the last
30 % of the episodes.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from anchored.inference.compilation import jit
from anchored.paper.experiments.cart_pole_study import Runs, Study
from anchored.rl.exploration import Thompson
from anchored.types import Array

LATE = 0.7  # fraction of the episodes after which an episode is late


class Drift(NamedTuple):
    """Where the cart is at the end of greedy episodes, and how fast; each field has one entry per run, (runs,)."""

    same_side: np.ndarray  # share of episodes that end on the run's more frequent side
    distance: np.ndarray  # mean distance from the centre, in m
    outward: np.ndarray  # mean velocity away from the centre, in m/s


class Learning(NamedTuple):
    """How the runs of one variant learn, and what their greedy policies do in the end."""

    curves: np.ndarray  # (runs, windows), mean reward per episode
    total: np.ndarray  # (runs,), cumulative reward
    greedy_reward: np.ndarray  # (runs,), mean reward of greedy episodes after training
    drift: Drift


def learning_of(study: Study, runs: Runs) -> Learning:
    """Return the statistics of the `runs` of one variant of the `study`."""
    return Learning(windows(study, runs.reward), runs.reward.sum(1), runs.greedy_reward.mean(1), drift_of(runs))


def windows(study: Study, values: np.ndarray) -> np.ndarray:
    """Return the means of `values`, (runs, episodes), over the windows of the `study`, (runs, windows)."""
    return values.reshape(len(values), -1, study.window).mean(2)


def drift_of(runs: Runs) -> Drift:
    """Return where the greedy policy of each of `runs` leaves the cart."""
    position, velocity = runs.greedy_end[..., 0], runs.greedy_end[..., 1]
    on_the_right = (position > 0).mean(1)
    return Drift(
        same_side=np.maximum(on_the_right, 1 - on_the_right),
        distance=np.abs(position).mean(1),
        outward=(np.sign(position) * velocity).mean(1),
    )


def early_reward(curves: np.ndarray) -> np.ndarray:
    """Return the mean reward of the first two windows of each run, (runs,)."""
    return curves[:, :2].mean(1)


def steepest_rise(curves: np.ndarray) -> np.ndarray:
    """Return the largest rise of each run over two windows, (runs,)."""
    return (curves[:, 2:] - curves[:, :-2]).max(1)


def late_dips(curves: np.ndarray) -> np.ndarray:
    """Return each run's largest fall below its best earlier window, among late windows, (runs,)."""
    falls = np.maximum.accumulate(curves, 1) - curves
    return falls[:, _first_late(curves) :].max(1)


def late_spread(curves: np.ndarray) -> tuple[float, float]:
    """Return the standard deviation between runs, averaged over late windows, and its standard error.

    The error is that of the standard deviation of n normal numbers, as if all late windows were one.
    """
    spread = float(curves[:, _first_late(curves) :].std(0, ddof=1).mean())
    return spread, spread / (2 * (len(curves) - 1)) ** 0.5


def _first_late(curves: np.ndarray) -> int:
    """Return the index of the first late window."""
    return round(LATE * curves.shape[1])


def ratio_of_means(values: np.ndarray, others: np.ndarray) -> tuple[float, float]:
    """Return the mean of `values` divided by that of `others`, (runs,) each, and its standard error.

    The two must be independent, with small relative errors.
    """
    means = np.mean(values), np.mean(others)
    relative_errors = [np.std(v, ddof=1) / len(v) ** 0.5 / m for v, m in zip((values, others), means, strict=True)]
    ratio = float(means[0] / means[1])
    return ratio, ratio * float(np.hypot(*relative_errors))


def shape_advantage(curves: np.ndarray, expected: str) -> tuple[float, float]:
    """Return how much better the `expected` shape fits the mean curve than the other shape, and the standard error.

    The advantage is the difference of root-mean-square errors (see `curve_errors`); its standard error is estimated by
    the jackknife.
    """

    def advantage(curve: np.ndarray) -> float:
        errors = curve_errors(curve)
        (other,) = errors.keys() - {expected}
        return errors[other] - errors[expected]

    n_runs = len(curves)
    without_one = [advantage(np.delete(curves, i, axis=0).mean(0)) for i in range(n_runs)]
    return advantage(curves.mean(0)), float(np.std(without_one) * (n_runs - 1) ** 0.5)


def curve_errors(curve: np.ndarray) -> dict[str, float]:
    """Return the root-mean-square errors of least-squares fits to `curve`, (windows,).

    The fitted functions, "logistic" and "exponential" (1 − exp), have three parameters each.
    """
    t = (np.arange(len(curve)) + 0.5) / len(curve)  # time as a fraction of the run
    best = curve.max()
    shapes = {  # the function, starting values of its second parameter, bounds of all three
        "logistic": (
            lambda ceiling, middle, time_scale: ceiling * expit((t - middle) / time_scale),
            (0.1, 0.3, 0.6),
            ((0, -5, 1e-3), (3 * best, 5, 10)),
        ),
        "exponential": (
            lambda ceiling, start, time_scale: ceiling - (ceiling - start) * np.exp(-t / time_scale),
            (0.0,),
            ((0, -3 * best, 1e-3), (3 * best, 3 * best, 10)),
        ),
    }
    errors = {}
    for name, (shape, guesses, bounds) in shapes.items():
        starts = [(best, second, 0.1) for second in guesses]
        # `curve_fit` would also compute a covariance, which is not needed and does not exist for a flat curve.
        fits = [least_squares(lambda p: shape(*p) - curve, guess, bounds=bounds) for guess in starts]  # noqa: B023
        errors[name] = float(min(np.sqrt(np.mean(fit.fun**2)) for fit in fits))
    return errors


def state_statistics(study: Study, runs: Runs, state: int) -> dict[str, np.ndarray]:
    """Return statistics of the Q-values at the state with index `state`, (runs,) each, by name.

    They are means over the last window: the probability of pushing "right", its distance from ½, "uneven", and the
    "spread", the standard deviation over members; "first_spread" is the spread after the first update.
    """
    q = runs.q[:, :, :, state]  # (runs, episodes, members, actions)
    right = probabilities(q[:, -study.window :])[..., 1]
    spread = q.std(2, ddof=1).mean(2)
    return {
        "right": right.mean(1),
        "uneven": np.abs(right - 0.5).mean(1),
        "spread": spread[:, -study.window :].mean(1),
        "first_spread": spread[:, study.burn_in],
    }


def probabilities(q: np.ndarray) -> np.ndarray:
    """Return the action probabilities of Algorithm 1, (..., actions), for Q-values `q`, (..., members, actions)."""
    flat = _probabilities(q.reshape(-1, *q.shape[-2:]))
    return np.asarray(flat).reshape(*q.shape[:-2], q.shape[-1])


@jit
@jax.vmap
def _probabilities(q: Array) -> Array:
    """Return the action probabilities for Q-values along a leading axis."""
    return Thompson().probabilities(q, 0)
