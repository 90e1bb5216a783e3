"""`QEnsembleAgent` in Gymnasium's control environments, five seeds each, evaluated by greedy episodes at the end.

python benchmarks/control.py
python benchmarks/control.py CartPole-v1 --steps-share 0.1 --seeds 2
python benchmarks/control.py --quick
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np
import reporting
from reporting import Json, measured, number

CONTROL = {  # number of steps, and goal for the mean return of the evaluation
    "CartPole-v1": (50_000, 475),
    "Acrobot-v1": (100_000, -90),
    "MountainCar-v0": (120_000, -115),
}
TUNED_DQN = {"CartPole-v1": 500, "Acrobot-v1": -77, "MountainCar-v0": -101}  # mean returns listed by RL Baselines3 Zoo


class Run(TypedDict):
    """One seed: the returns of its greedy episodes, and its time."""

    environment: str
    seed: int
    steps: int
    mean_return: float
    return_sd: float  # standard deviation over the greedy episodes
    seconds: float  # of training
    evaluation_seconds: float


def control_run(name: str, n_steps: int, seed: int, n_evaluated: int) -> Run:
    """Train an agent in the environment `name` for `n_steps` steps, and evaluate it in `n_evaluated` greedy episodes.

    `seed` is its random seed.
    """
    from anchored.rl import QEnsembleAgent

    started = time.perf_counter()
    agent = QEnsembleAgent(name, exploration="member", reward_scale=0.1, seed=seed)
    agent.learn(total_timesteps=n_steps)
    learning_seconds = time.perf_counter() - started
    returns = agent.evaluate(n_evaluated)
    return {
        "environment": name,
        "seed": seed,
        "steps": agent.n_steps,
        "mean_return": float(returns.mean()),
        "return_sd": float(returns.std(ddof=1)),
        "seconds": learning_seconds,
        "evaluation_seconds": time.perf_counter() - started - learning_seconds,
    }


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Run each seed of `options` in a separate process; yield the results whenever an environment is complete."""
    from joblib import Parallel, delayed

    budgets = {name: max(1, round(options.steps_share * CONTROL[name][0])) for name in options.names}
    tasks = [(name, budgets[name], seed, options.evaluated) for name in options.names for seed in range(options.seeds)]
    done: dict[str, list[Run]] = {name: [] for name in options.names}
    results: Json = {}
    pool = Parallel(n_jobs=options.processes, backend="loky", return_as="generator_unordered")
    for result in pool(delayed(control_run)(*task) for task in tasks):
        name = result["environment"]
        progress = f"{name}, seed {result['seed']}: {result['mean_return']:.1f} after {result['steps']:,} steps"
        reporting.note(f"{progress}, {result['seconds']:.0f} s")
        done[name].append(result)
        if len(done[name]) == options.seeds:
            runs = sorted(done[name], key=lambda run: run["seed"])
            # The goal applies only to the full number of steps.
            results[name] = summary(name, runs, CONTROL[name][1] if options.steps_share == 1 else None)
            yield results


def summary(name: str, runs: list[Run], goal: float | None) -> Json:
    """Return the mean over seeds with its goal, its bootstrap interval, and the `runs` of the environment `name`."""
    from scipy.stats import bootstrap

    means = np.array([run["mean_return"] for run in runs])
    interval = [means.mean()] * 2  # a single seed has no interval
    if len(means) > 1:
        # The corrected methods fail if all seeds have the same return.
        bootstrapped = bootstrap((means,), np.mean, method="percentile", rng=np.random.default_rng(0))
        interval = list(bootstrapped.confidence_interval)
    line = measured(f"{name}: mean evaluation return", means.mean(), "", goal, at_least=True)
    return {"mean": line, "interval": [float(end) for end in interval], "runs": runs}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of mean returns in `stored`, with their goals and those of a DQN tuned to each environment."""
    rows = []
    for name in (name for name in CONTROL if name in stored):
        result = stored[name]
        low, high = result["interval"]
        goal = result["mean"]["goal"]
        rows.append(
            (
                name,
                f"{result['runs'][0]['steps']:,}",
                ", ".join(number(run["mean_return"], 1) for run in result["runs"]),
                f"{number(result['mean']['value'], 1)} ({number(low, 1)} to {number(high, 1)})",
                "" if goal is None else f"≥ {number(goal, 0)}",
                number(TUNED_DQN[name], 0),
            )
        )
    header = ("environment", "steps", "each seed", "mean", "goal", "tuned DQN")
    return {"control": reporting.table(stored, "python benchmarks/control.py", header, rows)}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the environments that the command line, `arguments`, names; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("names", nargs="*", help=f"environments to run; default: {', '.join(CONTROL)}")
    parser.add_argument("--seeds", type=int, default=5, help="number of seeds; default: 5")
    parser.add_argument(
        "--steps-share", type=float, default=1.0, help="fraction of the full number of steps; default: 1"
    )
    parser.set_defaults(evaluated=100, processes=2)
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in CONTROL:
            parser.error(f"{name}: choose from {', '.join(CONTROL)}")
    options.names = options.names or list(CONTROL)
    if options.quick:
        quick = {"names": ["CartPole-v1"], "seeds": 1, "steps_share": 0.01, "evaluated": 2, "processes": 1}
        vars(options).update(quick)
    settings = {"steps_share": options.steps_share, "seeds": options.seeds, "processes": options.processes}
    return reporting.run_and_store("control", options, settings, run(options), tables)


if __name__ == "__main__":
    main()
