"""A version of `jax.jit` that bounds the number of compiled programs.

JAX compiles a program for every new shape, and each program takes about 90 memory maps and 4 MB. Linux allows a process
65,530 maps, so the least recently used programs are removed long before this limit is reached.
"""

import ctypes
import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import ExitStack, suppress
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax

from anchored.inference import compilation_cache
from anchored.inference.jax_options import jax_option

Result = TypeVar("Result")

# If one of the first two limits is reached when a new program is needed, the least recently used half is removed
MAX_MAPS = 9_000  # memory maps of all programs
MAX_PROGRAMS = 80
MIN_PROGRAMS = 32  # this many are always kept; a fit and its predictions need about ten
CLEAR_AFTER = 400  # number of removed programs after which all others and JAX's own caches are removed too
# XLA's option for the operations that a GPU gets as graphs of kernels, and a value that adds loops, and slices at a
# loop's index, to its default
GRAPHS_OPTION = "xla_gpu_enable_command_buffer"
IN_GRAPHS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,WHILE,CONDITIONAL,DYNAMIC_SLICE_FUSION"

_process: int | None = None  # id of the process in which `check_process` was called first


class jit(Generic[Result]):
    """`jax.jit` that removes the least recently used programs when there are too many.

    Parameters
    ----------
    function : callable
        A pure function of arrays or pytrees of arrays, passed by position.
    static_argnums : tuple of int
        Positions of arguments that are constants of the program. They must be hashable.
    donate_argnums : tuple of int
        Positions of arguments whose memory may be reused for the result.
    in_graphs : callable, optional
        Called with the arguments; returns whether a GPU should launch the program's loops as graphs of many kernels.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        *,
        static_argnums: tuple[int, ...] = (),
        donate_argnums: tuple[int, ...] = (),
        in_graphs: Callable[..., bool] | None = None,
    ):
        update_wrapper(self, function)
        self._function = function
        self._static, self._donated = static_argnums, donate_argnums
        self._in_graphs = in_graphs
        self.n_created = 0  # number of programs so far, including removed ones and those that are part of another

    def __call__(self, *arguments: object) -> Result:
        """Call the function with `arguments`. A new program is compiled if there is none for their shapes."""
        check_process()
        program = _programs.get(self._key(arguments), lambda: self._new_program(arguments))
        if program.is_compiled:
            return program.call(*arguments)
        with program.lock:
            if not program.is_compiled:  # another thread may have been first
                return program.first_call(self._function.__name__, arguments)
        return program.call(*arguments)

    def __reduce__(self) -> str:
        return self._function.__qualname__  # pickled by name, as functions are

    def clear_cache(self) -> None:
        """Remove all programs of this function, for example because a global value that they contain has changed."""
        _programs.remove(lambda key: key[0] is self)

    def _key(self, arguments: tuple) -> tuple[Hashable, ...]:
        """Return the key of the program for these arguments. JAX may still compile several programs for one key."""
        static = tuple(arguments[i] for i in self._static)
        leaves, structure = jax.tree.flatten([a for i, a in enumerate(arguments) if i not in self._static])
        # A leaf without a shape is a number. `np.shape` would take most of the time of a short call.
        return self, static, structure, tuple((getattr(x, "shape", ()), getattr(x, "dtype", None)) for x in leaves)

    def _new_program(self, arguments: tuple) -> "_Program":
        """Make a program for `arguments`.

        It is made from a new function object, since JAX keeps a program as long as its function exists.
        """

        def copy(*arguments: object) -> Result:
            return self._function(*arguments)

        self.n_created += 1
        function = update_wrapper(copy, self._function)
        is_in_graphs = self._in_graphs is not None and self._in_graphs(*arguments)
        options: dict[str, Any] = _options_of_graphs() if is_in_graphs else {}
        return _Program(jax.jit(function, static_argnums=self._static, donate_argnums=self._donated, **options))


class _Program:
    """A function that is compiled for one set of shapes. Its memory is freed when it is deleted."""

    def __init__(self, call: Callable[..., Any]):
        self.call = call
        self.is_compiled = False
        self.n_maps = 0  # number of memory maps that it takes; too high if others were compiled at the same time
        self.lock = threading.RLock()  # held during the first call; reentrant, since tracing may call the program again

    def first_call(self, name: str, arguments: tuple) -> Any:
        """Compile and call the program.

        If this fails, an entry of JAX's cache on disk may be damaged. All entries of functions called `name` are then
        removed, and the program is called again.
        """
        n_maps_before = _n_maps()
        try:
            with _compiling:
                result = self.call(*arguments)
        except Exception:  # if the function itself raised it, the second call will raise it again
            compilation_cache.remove_entries(name)
            result = self.call(*arguments)
        self.n_maps = max(0, _n_maps() - n_maps_before)
        # If this call is part of the tracing of another program, the result is tracers, and nothing was compiled
        self.is_compiled = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))
        return result


class _Programs:
    """The programs of this process, in the order of their last use."""

    def __init__(self) -> None:
        self._by_key: OrderedDict[tuple[Hashable, ...], _Program] = OrderedDict()
        self._n_removed = 0  # number of programs removed since JAX's caches were cleared
        self._lock = threading.Lock()

    def get(self, key: tuple[Hashable, ...], make: Callable[[], _Program]) -> _Program:
        """Return the program of `key`. If there is none, it is `make()`."""
        with self._lock:
            program = self._by_key.pop(key, None)
            if program is not None:
                self._by_key[key] = program
                return program
        compilation_cache.use()
        self._make_room()
        with self._lock:
            if key not in self._by_key:  # another thread may have been first
                self._by_key[key] = make()
            return self._by_key[key]

    def remove(self, matches: Callable[[tuple[Hashable, ...]], bool]) -> None:
        """Remove the programs for whose key `matches(key)` is true."""
        with self._lock:
            for key in [key for key in self._by_key if matches(key)]:
                del self._by_key[key]

    def _make_room(self) -> None:
        """Remove half of the programs if there are too many, and clear JAX's caches after CLEAR_AFTER removals."""
        with self._lock:
            if len(self._by_key) < MAX_PROGRAMS and sum(program.n_maps for program in self._by_key.values()) < MAX_MAPS:
                return
        with self._lock:
            n_kept = max(MIN_PROGRAMS, len(self._by_key) // 2)
            n_removed = max(0, len(self._by_key) - n_kept)
            for _ in range(n_removed):
                self._by_key.popitem(last=False)
            self._n_removed += n_removed
        if self._n_removed >= CLEAR_AFTER:
            _compiling.if_none(self._clear)
        if n_removed:
            gc.collect()  # a program and its function refer to each other
            _return_free_memory()

    def _clear(self) -> None:
        """Remove all programs, and clear JAX's caches."""
        with self._lock:
            self._by_key.clear()
            self._n_removed = 0
        jax.clear_caches()  # traces of removed programs take about 1 MB for each fit of a new shape


def keep_fewer_programs(most: int) -> None:
    """Keep at most `most` programs in this process, which may run for days beside other work."""
    global MAX_PROGRAMS
    MAX_PROGRAMS = most


class _Compiling:
    """Context manager of the threads that compile. Meanwhile JAX raises an error for each entry that it cannot read.

    By default JAX only warns about an unreadable entry of its cache on disk, and never replaces it.
    """

    def __init__(self) -> None:
        self._n = 0  # of threads that compile, counting a program whose tracing calls another one twice
        self._lock = threading.Lock()
        self._option = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            if self._n == 0:
                self._option.enter_context(jax_option("jax_raise_persistent_cache_errors", True))
            self._n += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n -= 1
            if self._n == 0:
                self._option.close()

    def if_none(self, work: Callable[[], None]) -> None:
        """Call `work` unless a thread compiles, and let no thread begin to compile meanwhile.

        A program that is compiled while JAX's caches are cleared would be marked as compiled although JAX no longer has
        it.
        """
        with self._lock:
            if self._n == 0:
                work()


def check_process() -> None:
    """Raise a RuntimeError if this process was forked from one that used JAX.

    A fork does not copy JAX's threads, so that it would hang.
    """
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had already used JAX, and would hang. Start processes without "
            'forking: joblib.parallel_config(backend="loky"), joblib\'s default, or multiprocessing\'s "spawn".'
        )


def _options_of_graphs() -> dict[str, dict[str, str]]:
    """Return the arguments of `jax.jit` with which a GPU launches loops as graphs.

    There are none on another device, or if the user has set the option in XLA_FLAGS.
    """
    if jax.default_backend() != "gpu" or GRAPHS_OPTION in os.environ.get("XLA_FLAGS", ""):
        return {}
    return {"compiler_options": {GRAPHS_OPTION: IN_GRAPHS}}


def _n_maps() -> int:
    """Return the number of memory maps of this process, or 0 if the system has no /proc."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def _return_free_memory() -> None:
    """Return freed memory to the system, which glibc does not do by itself for small blocks."""
    with suppress(OSError, AttributeError):  # another system, or another C library
        ctypes.CDLL(None).malloc_trim(0)


_programs = _Programs()
_compiling = _Compiling()
