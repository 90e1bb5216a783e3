"""Throughput of the agent of figure 4: many seeds in one program, compared with one seed.

    python benchmarks/rl_seeds.py                on a GPU
    python benchmarks/rl_seeds.py --quick        two seeds, a few episodes, on any machine

One seed and many seeds are run in turn; rates are steps of all seeds per second, medians over --repeats.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import reporting
from reporting import Json, Measured, measured
from rl import figure_4

if TYPE_CHECKING:
    from anchored.types import Key


def many_seeds(n_seeds: int, n_episodes: int, repeats: int, quick: bool = False) -> list[Measured]:
    """Measure the steps per second of all seeds together, for one seed and for `n_seeds`.

    A run trains new agents for `n_episodes` episodes; there are `repeats` runs, with small networks if `quick`.
    """
    import jax

    from anchored.rl.training import train

    config = figure_4(n_episodes, quick)
    programs, compile_seconds = {}, {}
    for n in (1, n_seeds):
        program = jax.jit(train if n == 1 else jax.vmap(train, in_axes=(0, None)))
        started = time.perf_counter()
        programs[n] = program.lower(_keys(n, 0), config).compile()
        compile_seconds[n] = time.perf_counter() - started

    def throughput(n: int, repeat: int) -> float:
        keys = jax.block_until_ready(_keys(n, repeat))
        started = time.perf_counter()
        train_state, _ = jax.block_until_ready(programs[n](keys, config))
        seconds = time.perf_counter() - started
        return int(np.sum(train_state.n_steps)) / seconds

    for n in programs:
        throughput(n, 0)  # the first call is slower
    rounds = [{n: throughput(n, 1 + i) for n in programs} for i in range(repeats)]
    rates = {n: float(np.median([by_number[n] for by_number in rounds])) for n in programs}
    return [
        *[measured(f"compilation, not counted below: {_seeds(n)}", s, "s") for n, s in compile_seconds.items()],
        *[measured(f"{n_episodes} episodes: {_seeds(n)}", rate, "steps/s") for n, rate in rates.items()],
        measured(f"throughput: {_seeds(n_seeds)} / 1 seed", rates[n_seeds] / rates[1], "×", 10, at_least=True),
    ]


def _keys(n: int, repeat: int) -> "Key":
    """Return one random key, or `n` of them along a leading axis; they differ for each `repeat`."""
    import jax

    key = jax.random.key(repeat)
    return key if n == 1 else jax.random.split(key, n)


def _seeds(n: int) -> str:
    """Return the number of seeds as text."""
    return "1 seed" if n == 1 else f"{n} seeds"


def main(arguments: Sequence[str] | None = None) -> Json:
    """Measure one seed and many seeds, with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=50, help="number of seeds in one program; default: 50")
    parser.add_argument("--episodes", type=int, default=300, help="number of episodes of each seed; default: 300")
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; default: 5")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seeds, options.episodes, options.repeats = 2, 12, 1
    settings = {"repeats": options.repeats, "episodes": options.episodes, "seeds": options.seeds}
    return reporting.run_and_store("rl_seeds", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the measured numbers once, with the `options` of the command line."""
    yield {"many_seeds": many_seeds(options.seeds, options.episodes, options.repeats, options.quick)}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of throughputs in `stored`."""
    lines = stored["many_seeds"]
    return {"many_seeds": reporting.measured_table(stored, "python benchmarks/rl_seeds.py", lines)}


if __name__ == "__main__":
    main()
