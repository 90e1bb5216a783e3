"""Speed of the default agent in Gymnasium's CartPole, with actions computed by NumPy and by a compiled program.

    python benchmarks/rl_gymnasium.py
    python benchmarks/rl_gymnasium.py --quick

Both agents are trained in turn, with the same number of updates; numbers are medians over --repeats.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import reporting
from reporting import Json, measured

NUMPY, COMPILED = "NumPy", "a compiled program"


def main(arguments: Sequence[str] | None = None) -> Json:
    """Measure both agents, with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; default: 5")
    parser.add_argument("--steps", type=int, default=4000, help="number of steps in a measurement; default: 4000")
    options = parser.parse_args(arguments)
    if options.quick:
        options.repeats, options.steps = 1, 100
    settings = {"repeats": options.repeats, "steps": options.steps}
    return reporting.run_and_store("rl_gymnasium", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the measured numbers once, as the `options` say."""
    from anchored.rl import QEnsembleAgent, runners
    from anchored.rl.acting import CompiledActor

    agents = {name: QEnsembleAgent("CartPole-v1", seed=0) for name in (NUMPY, COMPILED)}

    def throughput(name: str) -> float:
        make_actor = CompiledActor if name == COMPILED else runners.make_actor
        with patch.object(runners, "make_actor", make_actor):
            started = time.perf_counter()
            agents[name].learn(options.steps)
        return options.steps / (time.perf_counter() - started)

    for name in agents:  # the first updates come after 500 steps, and compile
        agents[name].learn(600)
    rates = reporting.interleaved({name: lambda name=name: throughput(name) for name in agents}, options.repeats)  # type: ignore[misc]
    lines = [measured(f"default agent, actions by {name}", rate, "steps/s") for name, rate in rates.items()]
    yield {"lines": [*lines, measured(f"{NUMPY} / {COMPILED}", rates[NUMPY] / rates[COMPILED], "×")]}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of rates in `stored`."""
    return {"gymnasium_speed": reporting.measured_table(stored, "python benchmarks/rl_gymnasium.py", stored["lines"])}


if __name__ == "__main__":
    main()
