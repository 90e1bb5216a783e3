"""The public agent on Gymnasium's control problems, five seeds each, judged by greedy episodes at its last step.

python benchmarks/control.py
python benchmarks/control.py CartPole-v1 --steps-share 0.01 --seeds 2
"""

import argparse
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from reporting import measured

CONTROL = {  # steps, and the mean evaluation return to reach by then
    "CartPole-v1": (50_000, 475),
    "Acrobot-v1": (100_000, -90),
    "MountainCar-v0": (120_000, -115),
}
EVALUATION_EPISODES = 100
PROCESSES = 2


def control_run(name: str, n_steps: int, seed: int) -> dict[str, Any]:
    """One agent from its start, judged after its last step by greedy episodes in an environment apart."""
    from anchored.rl import QEnsembleAgent

    started = time.perf_counter()
    agent = QEnsembleAgent(name, exploration="member", reward_scale=0.1, seed=seed)
    agent.learn(total_timesteps=n_steps)
    learnt = time.perf_counter() - started
    returns = agent.evaluate(EVALUATION_EPISODES)
    return {
        "environment": name,
        "seed": seed,
        "steps": agent.n_steps,
        "mean_return": float(returns.mean()),
        "return_sd": float(returns.std(ddof=1)),
        "seconds": learnt,
        "evaluation_seconds": time.perf_counter() - started - learnt,
    }


def control(names: list[str], n_seeds: int, steps_share: float, out: Path) -> None:
    """Seeds in processes of their own; a row and the results so far as soon as an environment is done."""
    from joblib import Parallel, delayed

    table = reporting.Table("environment", "steps", "each seed", "mean (95 % of bootstraps)", "goal", "seconds a seed")
    budgets = {name: max(1, round(steps_share * CONTROL[name][0])) for name in names}
    tasks = [(name, budgets[name], seed) for name in names for seed in range(n_seeds)]
    ended: dict[str, list] = {name: [] for name in names}
    results: dict[str, Any] = {}
    pool = Parallel(n_jobs=PROCESSES, backend="loky", return_as="generator_unordered")
    for run in pool(delayed(control_run)(*task) for task in tasks):
        name = run["environment"]
        told = f"{name}, seed {run['seed']}: {run['mean_return']:.1f} after {run['steps']:,} steps"
        print(f"{told}, {run['seconds']:.0f} s", file=sys.stderr, flush=True)
        ended[name].append(run)
        if len(ended[name]) == n_seeds:
            runs = sorted(ended[name], key=lambda run: run["seed"])
            # A goal is for all of the steps
            results[name] = summary(name, runs, CONTROL[name][1] if steps_share == 1 else None)
            table.row(*control_cells(name, results[name]))
            settings = {"steps_share": steps_share, "seeds": n_seeds, "processes": PROCESSES}
            reporting.write_json(out, settings | {"gymnasium": version("gymnasium")}, results)


def summary(name: str, runs: list[dict[str, Any]], goal: float | None) -> dict[str, Any]:
    """The mean over seeds beside its goal, and its interval."""
    from scipy.stats import bootstrap

    means = np.array([run["mean_return"] for run in runs])
    interval = [means.mean()] * 2  # one seed says nothing of the others
    if len(means) > 1:
        # Percentiles, since the corrected kinds fail where all seeds reach the same return
        found = bootstrap((means,), np.mean, method="percentile", rng=np.random.default_rng(0))
        interval = list(found.confidence_interval)
    line = measured(f"{name}: mean evaluation return", means.mean(), "", goal, at_least=True)
    return {"mean": line, "interval": [float(end) for end in interval], "runs": runs}


def control_cells(name: str, found: dict[str, Any]) -> tuple[str, ...]:
    """A row of the table."""
    runs, (lower, upper) = found["runs"], found["interval"]
    each = ", ".join(f"{run['mean_return']:.1f}" for run in runs)
    mean = f"{found['mean']['value']:.1f} ({lower:.1f} to {upper:.1f})"
    goal = " ".join(reporting.cells(found["mean"])[2].split())
    return name, f"{runs[0]['steps']:,}", each, mean, goal, f"{np.mean([run['seconds'] for run in runs]):.0f}"


def main() -> None:
    """Run what is asked for; a row is printed when its problem is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"all of {', '.join(CONTROL)} by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps-share", type=float, default=1.0, help="of the steps, for a trial")
    parser.add_argument("--out", type=Path, default=reporting.RESULTS / "control.json")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in CONTROL:
            parser.error(f"{name}: choose from {', '.join(CONTROL)}")
    print(f"{reporting.describe(reporting.machine())}\n", flush=True)
    control(arguments.names or list(CONTROL), arguments.seeds, arguments.steps_share, arguments.out)


if __name__ == "__main__":
    main()
