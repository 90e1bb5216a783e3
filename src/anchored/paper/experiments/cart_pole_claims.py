"""The paper's claims about figures 3 to 7 and 9 to 12, and whether they hold in our runs.

Numbers after ± are standard errors over the runs.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import least_squares
from scipy.special import expit

from anchored.inference.compilation import jit
from anchored.paper.experiments.cart_pole_study import BY_MEMBERS, STATES, VARIANTS, Runs, Study
from anchored.paper.findings import Claim, mean_of
from anchored.rl.exploration import Thompson
from anchored.types import Array

# How the paper's words are interpreted
SIMILAR = 0.15  # largest relative difference of cumulative rewards that are "similar"
ALIKE = 0.05  # largest relative difference of cumulative rewards of agents that perform "alike"
DIP = 0.1  # fall of a run's curve, relative to the longest episode, that counts as instability
ONE_SIDED = 0.9  # share of episodes ending on one side above which a policy is one-sided
EVEN = 0.2  # largest distance from ½ of a probability that is "about ½"
SURE = 0.9  # smallest probability of an action that the agent is sure of
LATE = 0.7  # share of the episodes after which an episode is late


class Drift(NamedTuple):
    """Where the cart is at the end of greedy episodes, and how fast; each field has one entry per run, (runs,)."""

    same_side: np.ndarray  # share of episodes that end on the more frequent side
    signed: np.ndarray  # mean position, in m
    distance: np.ndarray  # mean distance from the centre, in m
    outward: np.ndarray  # mean velocity away from the centre, in m/s


def claims(study: Study, runs: dict[str, Runs]) -> dict[int, list[Claim]]:
    """Return the claims about each figure of the `study`, by its number; the paper makes none about figure 9.

    `runs` has the runs of each variant by name.
    """
    of_states = _claims_of_states(study, runs["thompson"])
    return {
        3: _claims_of_epsilon_greedy(study, runs),
        4: _claims_of_thompson(study, runs, "thompson") + _claims_of_thompson(study, runs, "last_episode"),
        **of_states,
        9: [],
        10: [
            _claim_of_equal_reward(
                runs["unanchored"], runs["thompson"], "Without anchoring the ensemble performs equally well."
            )
        ],
        11: [
            _claim_of_shape(
                study, runs["epsilon"], "logistic", "ε-greedy makes the curve sigmoidal, for an ensemble too."
            )
        ],
        12: [_claim_of_number_of_members(runs)],
    }


def _claims_of_epsilon_greedy(study: Study, runs: dict[str, Runs]) -> list[Claim]:
    """Return the claims about figure 3."""
    single, thompson = runs["single"], runs["thompson"]
    first, other_first = (_first_windows(study, r) for r in (single, thompson))
    rise, other_rise = (steepest_rise(windows(study, r.reward)) for r in (single, thompson))
    dips = late_dips(study, single)
    drift = drift_of(single)
    return [
        _claim_of_shape(study, single, "logistic", "The curve is sigmoidal."),
        Claim.tested(
            "It starts worse than Thompson sampling, then improves suddenly.",
            clearly_less(first, other_first) and clearly_less(other_rise, rise),
            f"reward of episodes 1 to {2 * study.window}: {mean_of(first)} against {mean_of(other_first)}; largest "
            f"rise within {2 * study.window} episodes {mean_of(rise)} against {mean_of(other_rise)}",
        ),
        Claim.tested(
            "It becomes unstable late.",
            bool(dips.mean() > DIP * study.max_episode_steps),
            f"largest fall of a run's curve after episode {LATE * study.n_episodes:.0f}: {mean_of(dips)}, at most "
            f"{dips.max():.1f}; s.d. between runs {late_spread(study, single):.1f}",
        ),
        Claim.tested(
            "Its policy moves the cart to one side from every start, ever faster.",
            bool(drift.same_side.mean() > ONE_SIDED and drift.outward.mean() > 0),
            _drift_in_words(drift),
        ),
    ]


def _claims_of_thompson(study: Study, runs: dict[str, Runs], name: str) -> list[Claim]:
    """Return the claims about figure 4, for the variant `name`."""
    single, ensemble = runs["single"], runs[name]
    suffix = " (last episode in each batch)" if VARIANTS[name].last_episode_in_batch else ""
    ratio = totals(ensemble) / totals(single).mean()
    dips, other_dips = late_dips(study, ensemble), late_dips(study, single)
    spread, other_spread = late_spread(study, ensemble), late_spread(study, single)
    drift, other_drift = drift_of(ensemble), drift_of(single)
    steps, other_steps = ensemble.greedy_reward.mean(1), single.greedy_reward.mean(1)
    return [
        _claim_of_shape(study, ensemble, "exponential", f"The curve decays exponentially towards its ceiling{suffix}."),
        Claim.tested(
            f"Cumulative reward is similar to that of ε-greedy{suffix}.",
            bool(abs(ratio.mean() - 1) < SIMILAR),
            f"{mean_of(totals(ensemble) / 1000)} k against {mean_of(totals(single) / 1000)} k, "
            f"ratio {ratio.mean():.2f}",
        ),
        Claim.tested(
            f"It is more stable than ε-greedy late{suffix}.",
            clearly_less(dips, other_dips) and spread < other_spread,
            f"largest fall {mean_of(dips)} against {mean_of(other_dips)}; s.d. between runs {spread:.1f} against "
            f"{other_spread:.1f}",
        ),
        Claim.tested(
            f"Its policy is more sensible: the pole stays up as long, with less drift{suffix}.",
            bool(
                steps.mean() > other_steps.mean() - DIP * study.max_episode_steps
                and clearly_less(drift.distance, other_drift.distance)
                and clearly_less(drift.same_side, other_drift.same_side)
            ),
            f"greedy: {mean_of(steps)} steps, {_drift_in_words(drift)}; ε-greedy's: {mean_of(other_steps)} steps, "
            f"{_drift_in_words(other_drift)}",
        ),
    ]


def _claims_of_states(study: Study, runs: Runs) -> dict[int, list[Claim]]:
    """Return the claims about figures 5, 6 and 7, measured over the last window of all runs."""
    states = {name: _late_statistics(study, runs, i) for i, name in enumerate(STATES)}
    ordinary, critical, rare = states.values()
    return {
        5: [
            Claim.tested(
                "No action is clearly better, and the agent knows it: probabilities about ½, narrow distributions.",
                bool(ordinary["uneven"].mean() < EVEN and ordinary["spread"].mean() < rare["spread"].mean() / 2),
                f"|p − ½| {mean_of(ordinary['uneven'], 2)}; s.d. {mean_of(ordinary['spread'], 3)}, at the rare state "
                f"{mean_of(rare['spread'], 3)}",
            )
        ],
        6: [
            Claim.tested(
                "One action is clearly better, and the agent takes it.",
                bool(critical["right"].mean() > SURE),
                f"probability of the right push {mean_of(critical['right'], 2)}, in the worst run "
                f"{critical['right'].min():.2f}",
            )
        ],
        7: [
            Claim.tested(
                "Distributions stay broad.",
                bool((rare["spread"] / rare["first_spread"]).mean() > 0.5),
                f"s.d. {mean_of(rare['spread'], 3)}, after the first update {mean_of(rare['first_spread'], 3)}",
            ),
            Claim.tested(
                "Probabilities stay about ½.",
                bool(rare["uneven"].mean() < EVEN),
                f"|p − ½| {mean_of(rare['uneven'], 2)}",
            ),
        ],
    }


def _late_statistics(study: Study, runs: Runs, state: int) -> dict[str, np.ndarray]:
    """Return statistics of the Q-values at a state, (runs,) each, by name.

    They are means over the last window: the probability of pushing "right", how "uneven" the probabilities are, and the
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


def _claim_of_shape(study: Study, runs: Runs, expected: str, text: str) -> Claim:
    """Return the claim `text`, which holds if the `expected` function fits the learning curve better than the other."""
    curves = windows(study, runs.reward)
    errors = curve_errors(curves.mean(0))
    n_runs = sum(min(e, key=e.__getitem__) == expected for e in map(curve_errors, curves))
    return Claim.tested(
        text,
        min(errors, key=errors.__getitem__) == expected,
        f"r.m.s. error of a logistic {errors['logistic']:.1f}, of 1 − exp {errors['exponential']:.1f}; the "
        f"claimed one is better in {n_runs} of {len(curves)} single runs",
    )


def _claim_of_equal_reward(runs: Runs, others: Runs, text: str) -> Claim:
    """Return the claim `text`, which holds if the cumulative rewards of `runs` and `others` are alike."""
    ratio = totals(runs) / totals(others)
    return Claim.tested(
        text, bool(abs(ratio.mean() - 1) < ALIKE), f"cumulative reward {mean_of(ratio, 3)} times that with anchors"
    )


def _claim_of_number_of_members(runs: dict[str, Runs]) -> Claim:
    """Return the claim about figure 12."""
    ratios = {n: totals(runs[name]) / totals(runs["thompson"]) for n, name in BY_MEMBERS.items() if name != "thompson"}
    return Claim.tested(
        "The number of networks has little impact.",
        all(abs(ratio.mean() - 1) < SIMILAR for ratio in ratios.values()),
        "cumulative reward, times that of 10: " + ", ".join(f"{mean_of(r, 2)} (M = {n})" for n, r in ratios.items()),
    )


def windows(study: Study, values: np.ndarray) -> np.ndarray:
    """Return the means of `values`, (runs, episodes), over the windows of the `study`, (runs, windows)."""
    return values.reshape(len(values), -1, study.window).mean(2)


def totals(runs: Runs) -> np.ndarray:
    """Return the cumulative reward of each of `runs`, (runs,)."""
    return runs.reward.sum(1)


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


def clearly_less(values: np.ndarray, others: np.ndarray) -> bool:
    """Return whether the mean of `values` is below that of `others` by more than two standard errors.

    Both have shape (runs,); the standard error is that of the difference.
    """
    error = np.sqrt(values.var(ddof=1) / len(values) + others.var(ddof=1) / len(others))
    return bool(values.mean() + 2 * error < others.mean())


def steepest_rise(curves: np.ndarray) -> np.ndarray:
    """Return the largest rise of each run over two windows, (runs,); `curves` has shape (runs, windows)."""
    return (curves[:, 2:] - curves[:, :-2]).max(1)


def late_dips(study: Study, runs: Runs) -> np.ndarray:
    """Return each run's largest fall below its best earlier window, in late windows of the `study`, (runs,)."""
    curves = windows(study, runs.reward)
    falls = np.maximum.accumulate(curves, 1) - curves
    return falls[:, _first_late(curves) :].max(1)


def late_spread(study: Study, runs: Runs) -> float:
    """Return the standard deviation between `runs`, averaged over late windows of the `study`."""
    curves = windows(study, runs.reward)
    return float(curves[:, _first_late(curves) :].std(0, ddof=1).mean())


def drift_of(runs: Runs) -> Drift:
    """Return where the greedy policy of each of `runs` leaves the cart."""
    position, velocity = runs.greedy_end[..., 0], runs.greedy_end[..., 1]
    on_the_right = (position > 0).mean(1)
    return Drift(
        same_side=np.maximum(on_the_right, 1 - on_the_right),
        signed=position.mean(1),
        distance=np.abs(position).mean(1),
        outward=(np.sign(position) * velocity).mean(1),
    )


def probabilities(q: np.ndarray) -> np.ndarray:
    """Return the action probabilities of Algorithm 1, (..., actions), for Q-values `q`, (..., members, actions)."""
    flat = _probabilities(q.reshape(-1, *q.shape[-2:]))
    return np.asarray(flat).reshape(*q.shape[:-2], q.shape[-1])


@jit
@jax.vmap
def _probabilities(q: Array) -> Array:
    """Return the action probabilities for Q-values along a leading axis."""
    return Thompson().probabilities(q, 0)


def _first_windows(study: Study, runs: Runs) -> np.ndarray:
    """Return the mean reward of the first two windows of each run, (runs,)."""
    return windows(study, runs.reward)[:, :2].mean(1)


def _first_late(curves: np.ndarray) -> int:
    """Return the index of the first late window."""
    return round(LATE * curves.shape[1])


def _drift_in_words(drift: Drift) -> str:
    """Return a sentence about the last positions of the cart."""
    return (
        f"{drift.same_side.mean():.0%} ({drift.same_side.min():.0%} to {drift.same_side.max():.0%}) end on a "
        f"run's more frequent side, at distance {mean_of(drift.distance, 2)}, moving outwards at "
        f"{mean_of(drift.outward, 2)}"
    )
