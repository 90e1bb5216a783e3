"""Many seeds of the figure-4 agent in one program, beside one seed: steps of all together in a second.

    python benchmarks/rl_seeds.py                on a GPU
    python benchmarks/rl_seeds.py --seeds 4 --episodes 20 --repeats 1

Both run interleaved; rates are medians over --repeats.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import reporting
from reporting import Measured, measured
from rl import figure_4


def many_seeds(n_seeds: int, n_episodes: int, repeats: int) -> Measured:
    """Steps of all seeds together in a second, for one and for many, from the figure-4 agent's start."""
    import jax

    from anchored.rl.training import train

    config = figure_4(n_episodes)
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
        throughput(n, 0)  # what only the first call pays
    rounds = [{n: throughput(n, 1 + i) for n in programs} for i in range(repeats)]
    found = {n: float(np.median([one[n] for one in rounds])) for n in programs}
    return [
        *[measured(f"compilation, not counted below: {_seeds(n)}", s, "s") for n, s in compile_seconds.items()],
        *[measured(f"{n_episodes} episodes: {_seeds(n)}", rate, "steps/s") for n, rate in found.items()],
        measured(f"throughput: {_seeds(n_seeds)} / 1 seed", found[n_seeds] / found[1], "×", 10, at_least=True),
    ]


def _keys(n: int, repeat: int) -> Any:
    import jax

    key = jax.random.key(repeat)
    return key if n == 1 else jax.random.split(key, n)


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def main() -> None:
    """Measure, print the table, store it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--episodes", type=int, default=300, help="of each seed")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=reporting.RESULTS / "rl_seeds.json")
    arguments = parser.parse_args()
    print(f"{reporting.describe(reporting.machine())}\n", flush=True)
    lines = many_seeds(arguments.seeds, arguments.episodes, arguments.repeats)
    reporting.print_measured(lines)
    settings = {"repeats": arguments.repeats, "episodes": arguments.episodes, "seeds": arguments.seeds}
    reporting.write_json(arguments.out, settings, {"many_seeds": lines})


if __name__ == "__main__":
    main()
