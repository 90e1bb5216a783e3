"""The paper's study of exploration on CartPole: figures 3 to 7 and 9 to 12, with their claims."""

from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from anchored.paper.experiments import cart_pole_study
from anchored.paper.experiments.cart_pole_claims import ALIKE, DIP, EVEN, ONE_SIDED, SIMILAR, SURE, claims
from anchored.paper.experiments.cart_pole_statistics import (
    LATE,
    late_dips,
    late_spread,
    learning_of,
    probabilities,
    windows,
)
from anchored.paper.experiments.cart_pole_study import BY_MEMBERS, DEVIATIONS, STATES, VARIANTS, Runs, Study
from anchored.paper.findings import Figure, Progress, Table, mean_of, no_progress
from anchored.plots import as_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CUMULATIVE = "cumulative reward, thousands"
FULL = Study()
QUICK = Study(
    n_episodes=20,
    max_episode_steps=100,
    n_runs=2,
    width=50,
    burn_in=3,
    annealed_over=8,
    greedy_from=8,
    n_evaluated=5,
    window=2,
    one_program=True,
)
ACTIONS = {"left": "#d9722e", "right": "#08519c"}  # colours
SIZES = {3: "#d9722e", 5: "#5a9e6f", 10: "#08519c", 20: "#7a4a9e"}  # colours of figure 12, by number of members
CURVES_DESCRIPTION = (
    "Three panels: reward, cumulative reward and exploring steps, over the episodes, for each run, with mean and bands."
)
FIGURES = {  # title, what the paper shows and says, description of the picture
    3: (
        "Figure 3: one network, ε-greedy",
        "One network explores at random, less and less often. Its curve is sigmoidal: the network starts worse, then "
        "learns suddenly, and becomes unstable near episode 800. Its policy favours one direction from every start.",
        CURVES_DESCRIPTION,
    ),
    4: (
        "Figure 4: ten anchored members, Thompson sampling",
        "The spread of ten anchored members decides when to explore. Learning starts immediately, and the curve "
        "approaches its ceiling exponentially. The cumulative reward is similar to that of figure 3; learning is more "
        "stable, and the policy is more sensible.",
        CURVES_DESCRIPTION,
    ),
    5: (
        "Figure 5: Q-values at a non-critical state",
        "With the pole upright, no action is clearly better, and the agent is certain of this: both actions are about "
        "equally likely, and the distributions are narrow.",
        "Distributions of both actions' values early, midway and late in training: they overlap and become narrow.",
    ),
    6: (
        "Figure 6: Q-values at a critical state",
        "With the pole falling, the values of the actions differ much, and the agent takes the right action with "
        "reasonable confidence.",
        "Distributions of both actions' values early, midway and late in training: they separate, and pushing right "
        "has the higher values.",
    ),
    7: (
        "Figure 7: Q-values at a rare state",
        "At a rare state, the distributions stay broad, and both actions stay about equally likely.",
        "Distributions of both actions' values early, midway and late in training: they stay broad and overlap.",
    ),
    9: (
        "Figure 9: Thompson sampling, then greedy",
        "This is the agent of figure 4, but fully greedy from episode 400 on. The paper shows the curve without "
        "further comment.",
        CURVES_DESCRIPTION,
    ),
    10: (
        "Figure 10: without anchors",
        "This is the agent of figure 4 without anchoring. The paper says that anchoring did not improve performance in "
        "this task.",
        CURVES_DESCRIPTION,
    ),
    11: (
        "Figure 11: anchored members, ε-greedy",
        "Ten anchored members explore like the network of figure 3. The paper shows the curve; only about figure 3 "
        "does it say that ε-greedy makes the curve sigmoidal.",
        CURVES_DESCRIPTION,
    ),
    12: (
        "Figure 12: ensembles of different sizes",
        "Ensembles of three, five, ten and twenty members are compared. The number of networks had little impact.",
        "Three panels, with one line for each size: reward, cumulative reward and exploring steps. The lines are "
        "close together.",
    ),
}

NOTES = {  # how the paper's words are interpreted
    3: (
        "“Sigmoidal” means that a logistic function fits the mean curve better than 1 − exp. “Unstable” means that "
        f"the curve falls by more than {DIP:.0%} of the longest episode late in training. “The same side” means that "
        f"more than {ONE_SIDED:.0%} of a run's greedy episodes end on one side.",
    ),
    4: (
        f"“Similar” means within {SIMILAR:.0%}. The paper compares the plots of figures 3 and 4, with bands of two "
        "standard deviations of the runs. For Thompson sampling these are about 15 % of the cumulative reward, so a "
        "smaller difference of the means is inside the bands.",
        "“More sensible” means less one-sided, since the paper describes the policy of ε-greedy as favouring one "
        "direction. The final distance of the cart from the centre is shown, but is not a criterion: in more runs the "
        "order of the two agents is reversed.",
        "The two rows of panels show the agent without and with the mistake of the author's script, which puts the "
        "whole last episode into every batch.",
    ),
    5: (
        f"“About ½” means that |p − ½| is below {EVEN:g}, averaged over the runs. Even if two actions are equally "
        "good, |p − ½| is 0.1 on average with ten members, by chance; the threshold is twice this number. “Narrow” "
        "means that the s.d. is less than half of that at the rare state.",
    ),
    6: (f"“Takes it” means with a probability above {SURE}.",),
    7: (
        "“Broad” means that the s.d. is at least half of that after the first update. “About ½” means that |p − ½| is "
        f"below {EVEN:g}, as for figure 5; single runs may differ more.",
    ),
    10: (f"“Equally well” means that the cumulative rewards are within {ALIKE:.0%}.",),
    12: (
        f"“Little impact” means that the cumulative rewards are within {SIMILAR:.0%} of that of ten members, as for "
        "figure 4.",
    ),
}


def run(study: Study, on_progress: Progress = no_progress) -> dict[str, Runs]:
    """Run all agents of the `study`; return the runs of each variant by its name.

    `on_progress` is called with fractions of the work.
    """
    return cart_pole_study.run(study, on_progress=lambda n: on_progress(n / study.n_runs / len(VARIANTS)))


def figures(study: Study, runs: dict[str, Runs]) -> tuple[Figure, ...]:
    """Return all nine figures of the `study`, from the `runs` of each variant."""
    pictures, claims_by_figure = draw(study, runs), claims(study, runs)
    variants_of = {number: [name for name, v in VARIANTS.items() if v.figure == number] for number in FIGURES}
    variants_of |= {number: ["thompson"] for number in (5, 6, 7)} | {12: list(BY_MEMBERS.values())}
    variants_of[4] = ["single", *variants_of[4]]
    for number in (9, 10, 11):
        variants_of[number].insert(0, "thompson")
    shared_notes = (
        f"Figures 3 to 7 and 9 to 12 are one study: {study.n_runs} runs of {study.n_episodes:,} episodes of at most "
        f"{study.max_episode_steps} steps, with the settings of the author's script. Deviations from the paper and "
        "the script:",
        *(f"({i}) {deviation}" for i, deviation in enumerate(DEVIATIONS, start=1)),
    )
    return tuple(
        Figure(
            name=f"figure_{number}",
            title=title,
            paper=paper,
            picture=pictures[number],
            description=description,
            claims=tuple(claims_by_figure[number]),
            tables=(table(study, {name: runs[name] for name in variants_of[number]}),),
            notes=(*NOTES.get(number, ()), *shared_notes),
        )
        for number, (title, paper, description) in FIGURES.items()
    )


def curves(study: Study, runs: Runs) -> dict[str, np.ndarray]:
    """Return the curves of the three panels of `runs`, (runs, windows) each, by the titles of the panels.

    The `study` has the size of a window.
    """
    return {
        f"reward, mean of {study.window} episodes": windows(study, runs.reward),
        CUMULATIVE: runs.reward.cumsum(1)[:, study.window - 1 :: study.window] / 1000,
        f"explorations in {study.max_episode_steps} steps, mean of {study.window} episodes": windows(
            study, runs.explored
        ),
    }


def draw_learning(study: Study, rows: dict[str, Runs], reference: tuple[str, Runs] | None) -> bytes:
    """Draw a row of panels for each variant: its runs, their mean, and two standard deviations.

    Parameters
    ----------
    study
        Sizes of the study.
    rows
        The runs of each variant by its title.
    reference
        Label and runs of a variant whose mean is drawn in every panel; None for none.

    Returns
    -------
    bytes
        The picture as PNG.
    """
    import matplotlib.pyplot as plt

    from anchored.plots import REFERENCE, BandDisplay

    figure = plt.figure(figsize=(12, 3.9 * len(rows)), layout="constrained")
    parts = figure.subfigures(len(rows), 1, squeeze=False)[:, 0]
    for part, (name, runs) in zip(parts, rows.items(), strict=True):
        if len(rows) > 1:  # a single row needs no title besides that of the figure
            part.suptitle(name, fontsize=12)
        axes = part.subplots(1, 3)
        for ax, (panel, values) in zip(axes, curves(study, runs).items(), strict=True):
            x = _episodes(study, panel)
            BandDisplay(x, values.mean(0), values.std(0, ddof=1), values).plot(ax, n_bands=2)
            ax.get_legend().remove()
            if reference is not None:
                ax.plot(x, curves(study, reference[1])[panel].mean(0), **REFERENCE, label=reference[0])
            _finish(study, ax, panel)
        axes[0].get_lines()[0].set_label("runs")
        axes[0].legend(frameon=False, fontsize=9, loc="lower right")
    return as_png(figure)


def draw_state(study: Study, runs: Runs, state: str) -> bytes:
    """Draw figure 5, 6 or 7 of the `study`: the Q-values at `state`, early, midway and late in the first run.

    The titles of the panels give the probabilities of all `runs`. Returns the picture as PNG.
    """
    import matplotlib.pyplot as plt

    q = runs.q[:, :, :, list(STATES).index(state)]  # (runs, episodes, members, actions)
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    episodes = (study.burn_in, study.n_episodes // 2 - 1, study.n_episodes - 1)
    first_run = q[0, list(episodes)]
    # All panels have the same width, so that spreads can be compared.
    half_width = max(
        np.abs(first_run - first_run.mean((1, 2), keepdims=True)).max() * 1.3, 3 * first_run.std(1, ddof=1).max()
    )
    for ax, episode, values in zip(axes, episodes, first_run, strict=True):
        centre = values.mean()
        x = np.linspace(centre - half_width, centre + half_width, 400)
        probability = probabilities(q[:, episode])
        for i, (action, colour) in enumerate(ACTIONS.items()):
            density = stats.norm(values[:, i].mean(), values[:, i].std(ddof=1)).pdf(x)
            ax.fill_between(x, density, color=colour, alpha=0.25, linewidth=0)
            ax.plot(x, density, color=colour, linewidth=1.8, label=f"{action}: p = {probability[0, i]:.2f}")
            ax.plot(values[:, i], np.zeros(len(values)), "|", color=colour, markersize=12, clip_on=False)
        ax.set(xlabel="Q-value", xlim=(x[0], x[-1]), yticks=[])
        ax.set_ylim(bottom=0)
        ax.spines[["top", "right", "left"]].set_visible(False)
        of_each_run = ", ".join(f"{p:.2f}" for p in probability[:, 1])
        ax.set_title(f"after episode {episode + 1}\np(right) of each run: {of_each_run}", fontsize=10)
        ax.legend(frameon=False, fontsize=9, loc="upper right")
    axes[0].set_ylabel("density")
    coordinates = ", ".join(f"{x:g}" for x in STATES[state])
    figure.suptitle(
        f"{state} state ({coordinates}): members' values (marks) in the first run, and their fit", fontsize=12
    )
    return as_png(figure)


def draw(study: Study, runs: dict[str, Runs]) -> dict[int, bytes]:
    """Return all nine pictures of the `study` as PNG, by the number of the figure, from the `runs` of each variant."""
    references = {
        3: None,
        4: ("mean of figure 3", runs["single"]),
        **dict.fromkeys((9, 10, 11), ("mean of figure 4", runs["thompson"])),
    }
    pictures = {}
    for number, reference in references.items():
        rows = {v.title: runs[name] for name, v in VARIANTS.items() if v.figure == number}
        pictures[number] = draw_learning(study, rows, reference)
    for number, state in zip((5, 6, 7), STATES, strict=True):
        pictures[number] = draw_state(study, runs["thompson"], state)
    pictures[12] = draw_sizes(study, {n: runs[name] for n, name in BY_MEMBERS.items()})
    return pictures


def draw_sizes(study: Study, runs_by_size: dict[int, Runs]) -> bytes:
    """Draw figure 12 of the `study`: for each number of members, the mean of its runs, in shared panels.

    `runs_by_size` has the runs of each number of members. Returns the picture as PNG.
    """
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
    for n_members, runs in runs_by_size.items():
        for ax, (panel, values) in zip(axes, curves(study, runs).items(), strict=True):
            x, mean, error = _episodes(study, panel), values.mean(0), values.std(0, ddof=1) / len(values) ** 0.5
            colour = SIZES[n_members]
            ax.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
            ax.plot(x, mean, color=colour, linewidth=1.8, label=f"{n_members} members")
            _finish(study, ax, panel)
    axes[0].legend(frameon=False, loc="lower right", title="mean ± standard error")
    return as_png(figure)


def table(study: Study, runs: dict[str, Runs]) -> Table:
    """Return a table of the `study` with one row for each variant in `runs`."""
    n = 2 * study.window
    rows = []
    for name, variant_runs in runs.items():
        learning = learning_of(study, variant_runs)
        rows.append(
            (
                VARIANTS[name].title,
                mean_of(variant_runs.reward[:, :n].mean(1)),
                mean_of(variant_runs.reward[:, -n:].mean(1)),
                mean_of(learning.total / 1000),
                f"{variant_runs.explored.mean() / study.max_episode_steps:.0%}",
                mean_of(late_dips(learning.curves)),
                f"{late_spread(learning.curves)[0]:.1f}",
                mean_of(learning.greedy_reward),
                f"{learning.drift.same_side.mean():.0%}",
                mean_of(learning.drift.distance, 2),
            )
        )
    header = ("agent", f"first {n} episodes", f"last {n}", "cumulative, k", "explored", "late fall", "late s.d.")
    caption = (
        "Reward per episode and cumulative reward. “Late” means after episode "
        f"{LATE * study.n_episodes:.0f}: the columns have the largest fall of a run's curve, and the s.d. between "
        f"runs. The last three columns are about {study.n_evaluated} greedy episodes of each trained agent: their "
        "reward, the share that ends on a run's more frequent side, and the mean final distance from the centre, in m."
    )
    return Table((*header, "greedy", "one side", "distance"), tuple(rows), caption)


def _episodes(study: Study, panel: str) -> np.ndarray:
    """Return the episode at which a window's value is drawn: its middle for means, its end for sums."""
    ends = study.window * np.arange(1, study.n_episodes // study.window + 1)
    return ends if panel == CUMULATIVE else ends - study.window / 2


def _finish(study: Study, ax: "Axes", panel: str) -> None:
    """Set the title, limits and labels of a panel, after all lines have been drawn."""
    ax.set(xlabel="episode", ylabel="", xlim=(0, study.n_episodes))
    ax.set_title(panel, fontsize=10)
    ax.set_ylim(0, None if panel == CUMULATIVE else 1.04 * study.max_episode_steps)
    ax.spines[["top", "right"]].set_visible(False)
