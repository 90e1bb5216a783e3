"""`QEnsembleAgent(env)` with no other argument except the seed, in nine environments, with seeds 100 to 109.

    python benchmarks/defaults.py                  needs gymnasium[box2d] and bsuite; some hours on two cores
    python benchmarks/defaults.py --only CartPole-v1 catch
    python benchmarks/defaults.py --processes 15   in minutes on 16 cores
    python benchmarks/defaults.py --merge elsewhere.json     adds the runs of another machine, and runs nothing
    python benchmarks/defaults.py --quick

The defaults were chosen with seeds below 10. Every run is stored when it ends, and is not run again, so the command can
be stopped and repeated. With one process, all environments are run with one seed after another; with several, the
longest runs are started first, so that all processes end at about the same time. A deep sea counts as solved by
bsuite's rule; every other run is evaluated by greedy episodes after its last step.
"""

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import reporting
import rl_agents
from reporting import Json, number

FIRST_SEED = 100
N_EVALUATED = 100  # greedy episodes at the end of a run
QUICK = "CartPole-v1"  # the environment of --quick


class Task(NamedTuple):
    """An environment, how long the agent is trained, and the goal."""

    steps: int | None  # number of training steps
    episodes: int | None  # number of training episodes
    goal: float  # for the mean return over seeds; for a deep sea, the number of seeds that solve it
    n_seeds: int = 10
    tuned_dqn: float | None = None  # mean return of a DQN tuned to the environment, listed by RL Baselines3 Zoo


TASKS = {
    "DeepSea 10": Task(None, 500, 10),
    "DeepSea 20": Task(None, 1000, 10),
    "stochastic DeepSea 10": Task(None, 2500, 0.30),
    "FrozenLake-v1": Task(20_000, None, 0.70),
    "catch": Task(None, 1500, 0.95),
    "CartPole-v1": Task(50_000, None, 490, tuned_dqn=500),
    "Acrobot-v1": Task(100_000, None, -85, tuned_dqn=-77),
    "MountainCar-v0": Task(120_000, None, -105, tuned_dqn=-101),
    "LunarLander-v3": Task(200_000, None, 150, n_seeds=5, tuned_dqn=154),
}

CONTROL = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")  # environments in the README, if they have been run


class Row(TypedDict):
    """One seed in one environment."""

    environment: str
    seed: int
    steps: int
    episodes: int
    mean_return: float  # of the greedy episodes
    return_sd: float  # standard deviation over the greedy episodes
    solved: int | None  # number of episodes until a deep sea was solved; None if it was not, or is no deep sea
    seconds: float  # of training and evaluation
    machine: str  # where it was run


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the environments that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), help="environments; default: all")
    parser.add_argument("--processes", type=int, default=1, help="number of runs at the same time; default: 1")
    parser.add_argument("--merge", nargs="+", type=Path, help="stored results whose runs are added; nothing is run")
    parser.set_defaults(share=1.0, evaluated=N_EVALUATED)
    options = parser.parse_args(arguments)
    if options.quick:
        vars(options).update({"only": [QUICK], "share": 0.01, "evaluated": 2})
    settings = rl_agents.default_arguments()
    path = options.out or (None if options.quick else reporting.RESULTS / "defaults.json")
    known = reporting.stored_rows(path, settings)
    results = merge(known, options.merge, settings) if options.merge else run(options, known)
    return reporting.run_and_store("defaults", options, settings, results, tables)


def merge(known: Sequence[Row], files: Sequence[Path], settings: Json) -> Iterator[Json]:
    """Yield the rows in `known` with those of other stored results that have the same `settings`."""
    rows = {(row["environment"], row["seed"]): row for row in known}
    for path in files:
        others = reporting.stored_rows(path, settings)
        if not others:
            raise SystemExit(f"{path} has no runs with the present defaults")
        rows = {**{(row["environment"], row["seed"]): row for row in others}, **rows}
    yield {"rows": in_order(rows.values())}


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Return the rows in the order of the table."""
    return sorted(rows, key=lambda row: (list(TASKS).index(row["environment"]), row["seed"]))


def run(options: argparse.Namespace, known: Sequence[Row]) -> Iterator[Json]:
    """Yield the rows so far, in the order of the table; rows in `known` are not run again."""
    from joblib import Parallel, delayed

    rows = list(known)
    done = {(row["environment"], row["seed"]) for row in rows}
    yield {"rows": rows}
    n_seeds = 1 if options.quick else max(task.n_seeds for task in TASKS.values())
    tasks = [
        (name, FIRST_SEED + i, options.share, options.evaluated)
        for i in range(n_seeds)
        for name in options.only
        if i < TASKS[name].n_seeds and (name, FIRST_SEED + i) not in done
    ]
    if options.processes > 1:
        tasks.sort(key=lambda task: -_length(TASKS[task[0]]))
    pool = Parallel(n_jobs=options.processes, return_as="generator_unordered")
    for row in pool(delayed(train)(*task) for task in tasks):
        rows.append(row)
        solved = "" if row["solved"] is None else f", solved after {row['solved']} episodes"
        outcome = f"{row['environment']}, seed {row['seed']}: {row['mean_return']:.2f}{solved}"
        reporting.note(f"{outcome}, {row['steps']:,} steps, {row['seconds']:.0f} s")
        yield {"rows": in_order(rows)}


def _length(task: Task) -> int:
    """Return about how many steps a run of `task` takes, to compare it with others."""
    return 10 * task.episodes if task.episodes is not None else task.steps or 0


def train(name: str, seed: int, share: float, n_evaluated: int) -> Row:
    """Train the default agent in the environment `name`, and evaluate it in `n_evaluated` greedy episodes.

    `seed` is its random seed, and `share` the fraction of the full number of steps or episodes that it is trained for.
    """
    from anchored.paper.experiments.deep_sea_study import TREASURE, solved_at
    from anchored.paper.machine import machine
    from anchored.rl import QEnsembleAgent

    started, task = time.perf_counter(), TASKS[name]
    agent = QEnsembleAgent(make(name), seed=seed)
    steps, episodes = (None if n is None else max(1, round(share * n)) for n in (task.steps, task.episodes))
    agent.learn(steps, total_episodes=episodes)
    returns = agent.evaluate(n_evaluated, make(name))
    is_sea = name.startswith("DeepSea")
    return {
        "environment": name,
        "seed": seed,
        "steps": agent.n_steps,
        "episodes": agent.n_episodes,
        "mean_return": float(returns.mean()),
        "return_sd": float(returns.std(ddof=1)),
        "solved": solved_at(np.array(agent.history.returns) > TREASURE) if is_sea else None,
        "seconds": time.perf_counter() - started,
        "machine": reporting.place(machine()),
    }


def make(name: str) -> Any:
    """Return the environment `name`, one of TASKS: compiled, bsuite's, or Gymnasium's."""
    if "DeepSea" in name:
        from anchored.rl.environments import DeepSea

        return DeepSea(int(name.split()[-1]), stochastic=name.startswith("stochastic"))
    if name == "catch":
        import bsuite

        return bsuite.load("catch", {})
    import gymnasium

    return gymnasium.make(name)


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the environments in `stored`, with their goals."""
    rows = []
    for name, task in TASKS.items():
        runs = [row for row in stored["rows"] if row["environment"] == name]
        if runs:
            rows.append((name, _budget(task), str(len(runs)), *_result(name, task, runs), _known(task)))
    header = ("environment", "trained for", "seeds", "each seed", "result", "goal", "tuned DQN")
    shown = reporting.table(stored, "python benchmarks/defaults.py", header, rows)
    return {"defaults": shown + _elsewhere(stored)}


def _elsewhere(stored: Json) -> str:
    """Return a line with the environments whose runs were made on other machines than that of `stored`."""
    here = reporting.place(stored["machine"])
    places: dict[str, dict[str, int]] = {}
    for row in stored["rows"]:
        names = places.setdefault(row.get("machine", here), {})
        names[row["environment"]] = names.get(row["environment"], 0) + 1
    lines = [
        f"*On {place}: {', '.join(f'{count} of {name}' for name, count in names.items())}.*"
        for place, names in places.items()
        if place != here
    ]
    return "".join(f"\n\n{line}" for line in lines)


def means(stored: Json) -> dict[str, float]:
    """Return the mean over seeds of the greedy returns, for each environment of CONTROL that has been run."""
    returns = {name: [row["mean_return"] for row in stored["rows"] if row["environment"] == name] for name in CONTROL}
    return {name: float(np.mean(of_seeds)) for name, of_seeds in returns.items() if of_seeds}


def _budget(task: Task) -> str:
    """Return the number of steps or episodes of a task as text."""
    return f"{task.episodes:,} episodes" if task.steps is None else f"{task.steps:,} steps"


def _result(name: str, task: Task, runs: Sequence[Row]) -> tuple[str, str, str]:
    """Return as text: the result of each seed, the summary over seeds, and the goal."""
    if name.startswith("DeepSea"):
        solved = [row["solved"] for row in runs]
        n_solved = sum(episode is not None for episode in solved)
        each = ", ".join("not solved" if episode is None else str(episode) for episode in solved)
        return each, f"solved by {n_solved} of {len(runs)}", f"{task.goal:.0f} of {task.n_seeds}"
    digits = 2 if abs(task.goal) < 1 else 0
    each = ", ".join(number(row["mean_return"], digits) for row in runs)
    summary = reporting.mean_and_error(runs, "mean_return", digits + 1).removesuffix(" ± nan")  # type: ignore[arg-type]
    return each, summary, f"≥ {number(task.goal, digits)}"


def _known(task: Task) -> str:
    """Return the mean return of the tuned DQN as text; empty if there is none."""
    return "" if task.tuned_dqn is None else number(task.tuned_dqn, 0)


if __name__ == "__main__":
    main()
