"""bsuite: three settings of every experiment without images, for three agents, scored by bsuite itself.

    python benchmarks/bsuite_scores.py
    python benchmarks/bsuite_scores.py --experiments catch deep_sea --agents DQN
    python benchmarks/bsuite_scores.py --processes 8
    python benchmarks/bsuite_scores.py --quick

Environments come from `bsuite.load`, are logged by bsuite's own wrapper, and are scored by bsuite's own analysis. Every
run of an agent in a setting is stored when it ends, and is not run again, so the command can be stopped and repeated.
An experiment is scored when all its settings have been run. The picture is written next to the stored result.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import TypedDict

import numpy as np
import reporting
import rl_agents
from reporting import Json, number
from rl_agents import AGENTS

IMAGE_DATA = "mnist"  # the data set of the experiments that are left out
CATEGORIES = {  # bsuite's, in the order of its figures
    "basic": "basic",
    "noise": "noise",
    "scale": "scale",
    "exploration": "exploration",
    "credit_assignment": "credit assignment",
    "memory": "memory",
    "generalization": "generalization",
}
NOT_SCORED = ("steps", "episode_len", "episode_return")  # logged by bsuite, but not used by its analysis
QUICK = {"bandit": 20}  # experiments of --quick, and their numbers of episodes


class Row(TypedDict):
    """One agent in one setting of an experiment."""

    agent: str
    bsuite_id: str
    steps: int
    seconds: float
    mean_return: float  # of all episodes
    log: str  # what bsuite logged after some of the episodes, as CSV


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the settings that the command line, `arguments`, selects and that are not stored yet; draw the picture."""
    ids = settings_of_experiments()
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--experiments", nargs="+", choices=ids, default=list(ids), help="default: all")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS), help="default: all")
    parser.add_argument("--processes", type=int, default=1, help="number of runs at the same time; default: 1")
    options = parser.parse_args(arguments)
    if options.quick:
        options.experiments = list(QUICK)
    settings = rl_agents.settings()
    path = options.out or (None if options.quick else reporting.RESULTS / "bsuite_scores.json")
    results = run(options, reporting.stored_rows(path, settings))
    stored = reporting.run_and_store("bsuite_scores", options, settings, results, tables)
    if path is not None and len(shared_categories(stored["categories"])) > 2:
        draw(stored["categories"], path.with_suffix(".png"))
    return stored


def settings_of_experiments() -> dict[str, list[str]]:
    """Return the first, middle and last bsuite id of every experiment, by its name."""
    from bsuite import sweep

    ids: dict[str, list[str]] = {}
    for bsuite_id in sweep.SWEEP:
        if not bsuite_id.startswith(IMAGE_DATA):
            ids.setdefault(bsuite_id.split(sweep.SEPARATOR)[0], []).append(bsuite_id)
    return {name: [each[0], each[len(each) // 2], each[-1]] for name, each in ids.items()}


def run(options: argparse.Namespace, known: Sequence[Row]) -> Iterator[Json]:
    """Yield rows and scores so far; rows in `known` are not run again."""
    from joblib import Parallel, delayed

    rows = list(known)
    done = {(row["agent"], row["bsuite_id"]) for row in rows}
    yield {"rows": rows, **scores(rows)}
    tasks = [
        (agent, bsuite_id, QUICK[name] if options.quick else None)
        for name, ids in settings_of_experiments().items()
        if name in options.experiments
        for bsuite_id in ids
        for agent in options.agents
        if (agent, bsuite_id) not in done
    ]
    pool = Parallel(n_jobs=options.processes, return_as="generator_unordered")
    for row in pool(delayed(play)(*task) for task in tasks):
        rows.append(row)
        progress = f"{row['bsuite_id']}, {row['agent']}: {row['steps']:,} steps"
        reporting.note(f"{progress}, mean return {row['mean_return']:.3g}, {row['seconds']:.0f} s")
        yield {"rows": rows, **scores(rows)}


class Log:
    """A logger for bsuite's wrapper that keeps its rows in memory."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def write(self, data: dict[str, float]) -> None:
        """Add a row, with the quantities that are used for scores."""
        self.rows.append({name: value for name, value in data.items() if name not in NOT_SCORED})

    def to_csv(self) -> str:
        """Return all rows as CSV."""
        import pandas as pd

        return pd.DataFrame(self.rows).to_csv(index=False, float_format="%.7g")


def play(agent: str, bsuite_id: str, n_episodes: int | None) -> Row:
    """Train `agent` in the setting `bsuite_id` for `n_episodes`; None for the number that bsuite prescribes."""
    import bsuite
    from bsuite import sweep
    from bsuite.utils.wrappers import Logging

    started, log = time.perf_counter(), Log()
    name, index = bsuite_id.split(sweep.SEPARATOR)
    env = Logging(bsuite.load(name, sweep.SETTINGS[bsuite_id]), log)
    learner = rl_agents.make_agent(agent, env, int(index))
    learner.learn(total_episodes=n_episodes or sweep.EPISODES[bsuite_id])
    return {
        "agent": agent,
        "bsuite_id": bsuite_id,
        "steps": learner.n_steps,
        "seconds": time.perf_counter() - started,
        "mean_return": float(np.mean(learner.history.returns)),
        "log": log.to_csv(),
    }


def scores(rows: Sequence[Row]) -> dict[str, dict[str, dict[str, float]]]:
    """Return bsuite's scores of each agent: "experiments" and "categories", by agent and name.

    An experiment is scored when all three settings have been run, and a category when all its experiments have.
    """
    from matplotlib import rc_context

    with rc_context():  # restores Matplotlib's style, which bsuite changes
        from bsuite.experiments import summary_analysis

    _restore_append()
    ids, experiments = settings_of_experiments(), {}
    for agent in AGENTS:
        by_id = {row["bsuite_id"]: row for row in rows if row["agent"] == agent}
        complete = [name for name in ids if all(bsuite_id in by_id for bsuite_id in ids[name])]
        if complete:
            frame = _frame([by_id[bsuite_id] for name in complete for bsuite_id in ids[name]])
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the analysis was written for an older pandas
                scored = summary_analysis.bsuite_score(frame)
            experiments[agent] = dict(zip(scored["bsuite_env"], scored["score"].astype(float), strict=True))
    tags = {name: summary_analysis.BSUITE_INFO[name].tags for name in ids}
    return {
        "experiments": experiments,
        "categories": {agent: _categories(by_name, tags) for agent, by_name in experiments.items()},
    }


def _frame(rows: Sequence[Row]) -> object:
    """Return the logs as a data frame, with the settings of each experiment, as bsuite's analysis takes them."""
    import pandas as pd
    from bsuite.logging.logging_utils import join_metadata

    logs = [pd.read_csv(StringIO(row["log"])).assign(bsuite_id=row["bsuite_id"]) for row in rows]
    return join_metadata(pd.concat(logs, sort=False))


def _restore_append() -> None:
    """Give pandas its method `Series.append` again, which bsuite's analysis calls and pandas 2 removed."""
    import pandas as pd

    if not hasattr(pd.Series, "append"):
        pd.Series.append = lambda self, other: pd.concat([self, other])  # type: ignore[attr-defined]


def _categories(by_name: dict[str, float], tags: dict[str, Sequence[str]]) -> dict[str, float]:
    """Return the mean score of each category whose experiments are all in `by_name`."""
    members = {category: [name for name in tags if category in tags[name]] for category in CATEGORIES}
    return {
        category: float(np.mean([by_name[name] for name in names]))
        for category, names in members.items()
        if all(name in by_name for name in names)
    }


def tables(stored: Json) -> dict[str, str]:
    """Return the table of scores in `stored`: of categories, then of experiments; the best of each are in bold."""
    agents = list(stored["experiments"])
    rows = []
    for kind, labels in (("categories", CATEGORIES), ("experiments", None)):
        by_agent = [stored[kind][agent] for agent in agents]
        names = labels or sorted({name for by_name in by_agent for name in by_name})
        for name in names:
            scores = [by_name.get(name) for by_name in by_agent]
            if any(score is not None for score in scores):
                rows.append((f"*{labels[name]}*" if labels else f"`{name}`", *_cells(scores)))
    return {"bsuite": reporting.table(stored, "python benchmarks/bsuite_scores.py", ("", *agents), rows)}


def _cells(scores: Sequence[float | None]) -> list[str]:
    """Return scores as text, the largest in bold; None is left empty."""
    texts = ["" if score is None else number(score, 2) for score in scores]
    best = number(max(score for score in scores if score is not None), 2)
    return [f"**{text}**" if text == best else text for text in texts]


def shared_categories(by_agent: dict[str, dict[str, float]]) -> list[str]:
    """Return the names of the categories for which every agent has a score."""
    return [name for name in CATEGORIES if by_agent and all(name in by_name for by_name in by_agent.values())]


def draw(by_agent: dict[str, dict[str, float]], path: Path) -> None:
    """Draw the scores of each agent, by category, as a radar picture into the PNG file `path`."""
    import matplotlib.pyplot as plt

    from anchored.plots import as_png
    from anchored.storage import atomic

    names = shared_categories(by_agent)
    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    figure, ax = plt.subplots(figsize=(6.4, 4.8), layout="constrained", subplot_kw={"projection": "polar"})
    for agent, by_name in by_agent.items():
        values = np.array([by_name[name] for name in names])
        line = ax.plot([*angles, *angles[:1]], [*values, *values[:1]], label=agent)[0]
        ax.fill(angles, values, color=line.get_color(), alpha=0.1)
    ax.set_xticks(angles, [CATEGORIES[name] for name in names])
    ax.tick_params("x", pad=12)
    ax.set(ylim=(0, 1), yticks=(0.25, 0.5, 0.75, 1.0))
    ax.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1.08, 1.05))
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, as_png(figure))


if __name__ == "__main__":
    main()
