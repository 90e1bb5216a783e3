"""The paper's claims about figures 3 to 7 and 9 to 12, tested with our runs.

Numbers after ± are standard errors over the runs.
"""

from anchored.paper.experiments.cart_pole_statistics import (
    LATE,
    Drift,
    Learning,
    curve_errors,
    early_reward,
    late_dips,
    late_spread,
    learning_of,
    ratio_of_means,
    shape_advantage,
    state_statistics,
    steepest_rise,
)
from anchored.paper.experiments.cart_pole_study import BY_MEMBERS, STATES, VARIANTS, Runs, Study
from anchored.paper.findings import Claim, above, below, less, mean_of, standard_error, within

# How the paper's words are interpreted
SIMILAR = 0.15  # largest relative difference of cumulative rewards that are "similar"; the reason is in NOTES
ALIKE = 0.05  # largest relative difference of cumulative rewards of agents that perform "equally well"
DIP = 0.1  # fall of a run's curve, relative to the longest episode, that counts as instability
ONE_SIDED = 0.9  # share of episodes ending on one side above which a policy is one-sided
EVEN = 0.2  # largest |p − ½| of a probability that is "about ½"; the reason is in NOTES
SURE = 0.9  # smallest probability of an action that the agent is sure of
BROAD = 0.5  # smallest s.d. of a distribution that "stays broad", relative to that after the first update
NARROW = 0.5  # largest s.d. of a distribution that is "narrow", relative to that at the rare state


def claims(study: Study, runs: dict[str, Runs]) -> dict[int, list[Claim]]:
    """Return the claims about each figure of the `study`, by its number; the paper makes none about figure 9.

    `runs` has the runs of each variant by name.
    """
    learning = {name: learning_of(study, runs_of_one) for name, runs_of_one in runs.items()}
    single, thompson = learning["single"], learning["thompson"]
    return {
        3: claims_of_epsilon_greedy(study, single, thompson),
        4: claims_of_thompson(study, single, thompson)
        + claims_of_thompson(study, single, learning["last_episode"], " (last episode in each batch)"),
        **_claims_of_states(study, runs["thompson"]),
        9: [],
        10: [_claim_of_unanchored(learning["unanchored"], thompson)],
        11: [
            _claim_of_shape(
                learning["epsilon"], "logistic", "With ε-greedy, the curve of an ensemble is sigmoidal, too."
            )
        ],
        12: [_claim_of_number_of_members(learning)],
    }


def claims_of_epsilon_greedy(study: Study, single: Learning, thompson: Learning) -> list[Claim]:
    """Return the claims about figure 3, one network with ε-greedy, `single`; `thompson` is the agent of figure 4."""
    first, other_first = (early_reward(learning.curves) for learning in (single, thompson))
    rise, other_rise = (steepest_rise(learning.curves) for learning in (single, thompson))
    dips, side, outward = late_dips(single.curves), single.drift.same_side, single.drift.outward
    n_episodes = 2 * study.window
    return [
        _claim_of_shape(single, "logistic", "The curve of ε-greedy is sigmoidal."),
        Claim.tested(
            "ε-greedy starts worse than Thompson sampling, and then improves suddenly.",
            (less(first, other_first), less(other_rise, rise)),
            f"reward of episodes 1 to {n_episodes}: {mean_of(first)} against {mean_of(other_first)}; largest rise "
            f"within {n_episodes} episodes: {mean_of(rise)} against {mean_of(other_rise)}",
        ),
        Claim.tested(
            "Late in training, ε-greedy becomes unstable.",
            [above(dips.mean(), standard_error(dips), DIP * study.max_episode_steps)],
            f"largest fall of a run's curve after episode {LATE * study.n_episodes:.0f}: {mean_of(dips)} on average, "
            f"{dips.max():.1f} in the worst run",
            is_main=True,
        ),
        Claim.tested(
            "From every start, the policy of ε-greedy moves the cart to the same side, faster and faster.",
            (above(side.mean(), standard_error(side), ONE_SIDED), above(outward.mean(), standard_error(outward), 0)),
            _drift_in_words(single.drift),
        ),
    ]


def claims_of_thompson(study: Study, single: Learning, thompson: Learning, suffix: str = "") -> list[Claim]:
    """Return the claims about figure 4: an ensemble, `thompson`, compared with one network, `single`.

    `suffix` is added to the text of each claim, to distinguish variants of the ensemble.
    """
    ratio, ratio_error = ratio_of_means(thompson.total, single.total)
    dips, other_dips = late_dips(thompson.curves), late_dips(single.curves)
    (spread, error), (other_spread, other_error) = late_spread(thompson.curves), late_spread(single.curves)
    steps, other_steps = thompson.greedy_reward, single.greedy_reward
    as_long = above(
        steps.mean() - other_steps.mean(),
        (standard_error(steps) ** 2 + standard_error(other_steps) ** 2) ** 0.5,
        -DIP * study.max_episode_steps,
    )
    return [
        _claim_of_shape(thompson, "exponential", f"The curve approaches its ceiling exponentially{suffix}."),
        Claim.tested(
            f"The cumulative reward is similar to that of ε-greedy{suffix}.",
            within(ratio, ratio_error, 1, SIMILAR),
            f"{mean_of(thompson.total / 1000)} k against {mean_of(single.total / 1000)} k, ratio {ratio:.2f} ± "
            f"{ratio_error:.2f}",
            is_main=not suffix,
        ),
        Claim.tested(
            f"Late in training, Thompson sampling is more stable than ε-greedy{suffix}.",
            (less(dips, other_dips), above(other_spread - spread, (error**2 + other_error**2) ** 0.5, 0)),
            f"largest fall of a run's curve: {mean_of(dips)} against {mean_of(other_dips)}; s.d. between runs: "
            f"{spread:.1f} ± {error:.1f} against {other_spread:.1f} ± {other_error:.1f}",
            is_main=not suffix,
        ),
        Claim.tested(
            "The policy is more sensible than that of ε-greedy: the pole stays up equally long, and the policy is less "
            f"one-sided{suffix}.",
            (as_long, less(thompson.drift.same_side, single.drift.same_side)),
            f"greedy episodes: {mean_of(steps)} steps, {_drift_in_words(thompson.drift)}; trained with ε-greedy: "
            f"{mean_of(other_steps)} steps, {_drift_in_words(single.drift)}",
            is_main=not suffix,
        ),
    ]


def _claims_of_states(study: Study, runs: Runs) -> dict[int, list[Claim]]:
    """Return the claims about figures 5, 6 and 7, measured over the last window of all runs."""
    ordinary, critical, rare = (state_statistics(study, runs, i) for i in range(len(STATES)))
    narrower = ordinary["spread"] - NARROW * rare["spread"]  # negative if narrow
    broadness = rare["spread"] / rare["first_spread"]
    return {
        5: [
            Claim.tested(
                "No action is clearly better, and the agent is certain of this: probabilities are about ½, and "
                "distributions are narrow.",
                (
                    below(ordinary["uneven"].mean(), standard_error(ordinary["uneven"]), EVEN),
                    below(narrower.mean(), standard_error(narrower), 0),
                ),
                f"|p − ½| {mean_of(ordinary['uneven'], 2)}; s.d. {mean_of(ordinary['spread'], 3)}, at the rare state "
                f"{mean_of(rare['spread'], 3)}",
            )
        ],
        6: [
            Claim.tested(
                "One action is clearly better, and the agent takes it.",
                [above(critical["right"].mean(), standard_error(critical["right"]), SURE)],
                f"probability of the right push {mean_of(critical['right'], 2)}, in the worst run "
                f"{critical['right'].min():.2f}",
                is_main=True,
            )
        ],
        7: [
            Claim.tested(
                "Distributions stay broad.",
                [above(broadness.mean(), standard_error(broadness), BROAD)],
                f"s.d. {mean_of(rare['spread'], 3)}, after the first update {mean_of(rare['first_spread'], 3)}",
                is_main=True,
            ),
            Claim.tested(
                "Probabilities stay about ½.",
                [below(rare["uneven"].mean(), standard_error(rare["uneven"]), EVEN)],
                f"|p − ½| {mean_of(rare['uneven'], 2)}; p(right) of the runs {rare['right'].min():.2f} to "
                f"{rare['right'].max():.2f}",
            ),
        ],
    }


def _claim_of_shape(learning: Learning, expected: str, text: str) -> Claim:
    """Return the claim `text`, which holds if the `expected` function fits the mean curve better than the other."""
    errors = curve_errors(learning.curves.mean(0))
    advantage, error = shape_advantage(learning.curves, expected)
    return Claim.tested(
        text,
        [above(advantage, error, 0)],
        f"r.m.s. error of a fitted logistic function {errors['logistic']:.1f}, of 1 − exp "
        f"{errors['exponential']:.1f}; difference {abs(advantage):.1f} ± {error:.1f}",
    )


def _claim_of_unanchored(unanchored: Learning, anchored: Learning) -> Claim:
    """Return the claim about figure 10, in which runs with the same index start alike."""
    ratio = unanchored.total / anchored.total
    return Claim.tested(
        "Without anchoring, the ensemble performs equally well.",
        within(ratio.mean(), standard_error(ratio), 1, ALIKE),
        f"cumulative reward {mean_of(ratio, 3)} times that with anchors",
        is_main=True,
    )


def _claim_of_number_of_members(learning: dict[str, Learning]) -> Claim:
    """Return the claim about figure 12."""
    sizes = {n: name for n, name in BY_MEMBERS.items() if name != "thompson"}
    ratios = {n: learning[name].total / learning["thompson"].total for n, name in sizes.items()}
    return Claim.tested(
        "The number of networks has little impact.",
        [c for ratio in ratios.values() for c in within(ratio.mean(), standard_error(ratio), 1, SIMILAR)],
        f"cumulative reward, times that of {VARIANTS['thompson'].n_members}: "
        + ", ".join(f"{mean_of(ratio, 2)} (M = {n})" for n, ratio in ratios.items()),
        is_main=True,
    )


def _drift_in_words(drift: Drift) -> str:
    """Return a phrase about the last positions of the cart."""
    low, high = drift.same_side.min(), drift.same_side.max()
    return (
        f"{mean_of(100 * drift.same_side, 0)} % of the episodes ({100 * low:.0f} to {100 * high:.0f} %) end on a run's "
        f"more frequent side, at a distance of {mean_of(drift.distance, 2)} m from the centre, moving outwards at "
        f"{mean_of(drift.outward, 2)} m/s"
    )
