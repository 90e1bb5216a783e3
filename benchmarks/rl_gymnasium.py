"""Speed of the default agent in Gymnasium's CartPole.

    python benchmarks/rl_gymnasium.py
    python benchmarks/rl_gymnasium.py --old ../older/src
    python benchmarks/rl_gymnasium.py --quick

Actions computed by NumPy are compared with actions computed by a compiled program, and eight environments at once with
one; with --old also with an older version of the library, whose package is in that folder. Agents are trained in turn,
with the same number of updates for each step; numbers are medians over --repeats.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import reporting
from reporting import Json, measured

NUMPY, COMPILED, EIGHT, OLD = "actions by NumPy", "actions by a compiled program", "eight environments", "older version"
N_ENVS, WARM_UP = 8, 640  # the first updates come after 500 steps, and compile
MIN_RATIO_OF_EIGHT, MIN_RATIO_TO_OLD = 2.0, 4.0
OLDER_AGENT = """
import sys, time
from anchored.rl import QEnsembleAgent
agent = QEnsembleAgent("CartPole-v1", seed=0)
agent.learn(int(sys.argv[1]))
started = time.perf_counter()
agent.learn(int(sys.argv[2]))
print(int(sys.argv[2]) / (time.perf_counter() - started))
"""  # as a user of that version would write it


def main(arguments: Sequence[str] | None = None) -> Json:
    """Measure the agents, with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; default: 5")
    parser.add_argument("--steps", type=int, default=4000, help="number of steps in a measurement; default: 4000")
    parser.add_argument("--old", metavar="FOLDER", help="folder with the package of an older version to compare with")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats, options.steps = 1, 96
    settings = {"repeats": options.repeats, "steps": options.steps}
    return reporting.run_and_store("rl_gymnasium", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the measured numbers once, with the `options` of the command line."""
    import gymnasium

    from anchored.rl import QEnsembleAgent, runners
    from anchored.rl.acting import CompiledActor

    agents = {name: QEnsembleAgent("CartPole-v1", seed=0) for name in (NUMPY, COMPILED)}
    gradient_steps = N_ENVS * agents[NUMPY].arguments.gradient_steps  # as many for each step
    environments = gymnasium.make_vec("CartPole-v1", N_ENVS)
    agents[EIGHT] = QEnsembleAgent(environments, seed=0, gradient_steps=gradient_steps)

    def throughput(name: str) -> float:
        if name == OLD:
            return _throughput_of_old(options.old, options.steps)
        agent = agents[name]
        make_actor = CompiledActor if name == COMPILED else runners.make_actor
        with patch.object(runners, "make_actor", make_actor):
            n_before, started = agent.n_steps, time.perf_counter()
            agent.learn(options.steps)
        return (agent.n_steps - n_before) / (time.perf_counter() - started)

    for agent in agents.values():
        agent.learn(WARM_UP)
    names = [*agents, OLD] if options.old else list(agents)
    rates = reporting.interleaved({name: lambda name=name: throughput(name) for name in names}, options.repeats)  # type: ignore[misc]
    lines = [measured(f"default agent, {name}", rate, "steps/s") for name, rate in rates.items()]
    lines.append(measured(f"{NUMPY} / {COMPILED}", rates[NUMPY] / rates[COMPILED], "×"))
    lines.append(measured(f"{EIGHT} / one", rates[EIGHT] / rates[NUMPY], "×", MIN_RATIO_OF_EIGHT, at_least=True))
    if options.old:
        lines.append(measured(f"{NUMPY} / {OLD}", rates[NUMPY] / rates[OLD], "×", MIN_RATIO_TO_OLD, at_least=True))
    yield {"lines": lines}


def _throughput_of_old(folder: str, n_steps: int) -> float:
    """Return the steps in a second of the default agent of the version whose package is in `folder`."""
    command = [sys.executable, "-c", OLDER_AGENT, str(WARM_UP), str(n_steps)]
    environment = {**os.environ, "PYTHONPATH": folder}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def tables(stored: Json) -> dict[str, str]:
    """Return the table of rates in `stored`."""
    return {"gymnasium_speed": reporting.measured_table(stored, "python benchmarks/rl_gymnasium.py", stored["lines"])}


if __name__ == "__main__":
    main()
