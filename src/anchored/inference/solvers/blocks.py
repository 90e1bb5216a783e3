"""Run any number of lanes in blocks of fixed width, on all the cores this process may use.

Lane i stands in block i // width at place i % width, whoever asks and however many there are, and a block is
always trained whole: the same program sees the same numbers, so a lane's result cannot depend on the others'
number. Blocks run in threads, which on a CPU keeps every core busy where one wide program would not.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

Result = TypeVar("Result")

# Multiply-adds of one step above which a lane fills the machine by itself, and lanes side by side that are
# worth their company below it.
MOST_WORK = {"cpu": 2**21, "gpu": 2**31}
MOST_LANES = {"cpu": 5, "gpu": 512}


def width(n_params: int, n_rows: int) -> int:
    """Lanes a block, from what one lane's step costs: parameters × rows of a batch."""
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    return max(1, min(MOST_LANES[kind], MOST_WORK[kind] // max(1, n_params * n_rows)))


def run(task: Callable[[int], Result], blocks: Sequence[int]) -> list[Result]:
    """`task(block)` for each of `blocks`, in order; threads see the caller's precision."""
    double = in_double()

    def in_thread(block: int) -> Result:
        with jax.enable_x64(double):
            return task(block)

    n_threads = min(len(blocks), _n_threads())
    with threadpool_limits(1, user_api="blas"):  # threads of OpenBLAS beside ours made a factorisation 100 times slower
        if n_threads == 1:
            return [task(block) for block in blocks]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(in_thread, blocks))


def in_double() -> bool:
    """Whether JAX computes in float64 here: a setting that threads and processes do not inherit."""
    return jnp.result_type(float) == jnp.float64


def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _n_threads() -> int:
    """All cores; fewer where joblib's workers, or a cluster's, are told to share them."""
    if jax.default_backend() != "cpu":
        return 1
    cores = n_cores()
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(allowed)) if allowed.isdigit() and int(allowed) > 0 else cores
