"""Divide lanes (training problems, see `inference.lanes`) into blocks, and run blocks on all cores of this process.

Where a block begins and ends does not depend on the number of lanes, and the last block is filled up. So lane i is
always at the same position of the same program, and its result is the same bit for bit however many lanes there are.
Blocks run in threads, since a single wide program would not use all cores of a CPU.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from itertools import chain, repeat
from typing import TypeVar

import jax
import jax.numpy as jnp
from threadpoolctl import threadpool_limits

Block = TypeVar("Block")
Result = TypeVar("Result")

# Upper bounds of the size of a block; larger blocks would not be faster
MAX_WORK = {"cpu": 2**21, "gpu": 2**34}  # multiply-adds of one step of all lanes
# Number of lanes of the first block, the second, and so on; the last number is that of all later blocks. On a GPU
# a step of 128 small networks takes little longer than one of a single network, and 8,192 use it fully.
WIDTHS = {"cpu": (5,), "gpu": (128, 896, 1024, 8192)}


def partition(first: int, stop: int, n_params: int, n_rows: int) -> list[range]:
    """Return the blocks that contain the lanes `first` to `stop` − 1, as ranges of lanes.

    The first block may begin before `first`, and the last may end after `stop`.

    Parameters
    ----------
    first, stop : int
        The lanes.
    n_params : int
        Number of parameters of a network.
    n_rows : int
        Number of rows in a batch.
    """
    device = device_kind()
    max_width = max(1, MAX_WORK[device] // max(1, n_params * n_rows))
    blocks: list[range] = []
    start = 0
    for width in chain(WIDTHS[device], repeat(WIDTHS[device][-1])):
        if start >= stop:
            break
        blocks.append(range(start, start + min(width, max_width)))
        start = blocks[-1].stop
    return [block for block in blocks if block.stop > first]


def run(task: Callable[[Block], Result], blocks: Sequence[Block]) -> list[Result]:
    """Call `task(block)` for each of the `blocks`, or other items, in threads, and return the results in order.

    The threads use the precision and the context variables of the caller, which they do not inherit.
    """
    in_float64 = uses_float64()

    def in_thread(block: Block, context: Context) -> Result:
        with jax.enable_x64(in_float64):
            return context.run(task, block)

    n_threads = min(len(blocks), _n_threads())
    with threadpool_limits(1, user_api="blas"):  # with OpenBLAS's threads, a factorisation was 100 times slower
        if n_threads == 1:
            return [task(block) for block in blocks]
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(in_thread, blocks, [copy_context() for _ in blocks]))


def device_kind() -> str:
    """Return "cpu", or "gpu" for any accelerator."""
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


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
    if device_kind() == "gpu":
        return 1
    cores = n_cores()
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(allowed)) if allowed.isdigit() and int(allowed) > 0 else cores
