"""Run lanes (training problems, see `inference.lanes`) in blocks of fixed width, on all cores of this process.

Lane i is always at position i % width of block i // width, and the last block is filled up to the same width. All
blocks thus run the same compiled program, and the result of a lane is the same bit for bit however many lanes there
are. Blocks run in threads, since a single wide program would not use all cores of a CPU.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

Result = TypeVar("Result")

# Upper bounds of the size of a block; larger blocks would not be faster
MAX_WORK = {"cpu": 2**21, "gpu": 2**31}  # multiply-adds of one step of all lanes
MAX_LANES = {"cpu": 5, "gpu": 512}


def width(n_params: int, n_rows: int) -> int:
    """Return the number of lanes in a block, for networks of `n_params` parameters and batches of `n_rows` rows."""
    device = "cpu" if jax.default_backend() == "cpu" else "gpu"
    return max(1, min(MAX_LANES[device], MAX_WORK[device] // max(1, n_params * n_rows)))


def run(task: Callable[[int], Result], blocks: Sequence[int]) -> list[Result]:
    """Call `task(block)` for each number in `blocks`, in threads, and return the results in order.

    The threads use the precision of the caller, which they do not inherit in JAX.
    """
    in_float64 = uses_float64()

    def in_thread(block: int) -> Result:
        with jax.enable_x64(in_float64):
            return task(block)

    n_threads = min(len(blocks), _n_threads())
    with threadpool_limits(1, user_api="blas"):  # with OpenBLAS's threads, a factorisation was 100 times slower
        if n_threads == 1:
            return [task(block) for block in blocks]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(in_thread, blocks))


def uses_float64() -> bool:
    """Return whether JAX computes in float64 in this thread. Other threads and processes do not inherit the setting."""
    return jnp.result_type(float) == jnp.float64


def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _n_threads() -> int:
    """Return the number of threads for blocks: 1 on an accelerator, otherwise the number of cores.

    OMP_NUM_THREADS, which joblib sets in its workers, can lower it.
    """
    if jax.default_backend() != "cpu":
        return 1
    cores = n_cores()
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(allowed)) if allowed.isdigit() and int(allowed) > 0 else cores
