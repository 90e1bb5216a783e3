"""Compiled programs: `jit` bounds how many a process holds, and one thread compiles at a time.

Every new shape is a new program, and each costs some 90 memory maps and 4 MB. Linux ends a process that has more than
65,530 maps, so programs that have not been used lately are let go long before.
"""

import ctypes
import gc
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import update_wrapper
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from anchored.inference import compilation_cache
from anchored.inference.jax_options import jax_option

Result = TypeVar("Result")

MOST_MAPS = 9_000  # of the programs held; beyond, the older half is let go
MOST_PROGRAMS = 80
CLEAR_AFTER = 400  # programs let go
FEWEST_PROGRAMS = 32  # that stay in any case: a fit and its predictions need about ten

_process: int | None = None  # the one that has computed
_compiling = threading.RLock()  # held for a program's first call, which may call others while it is traced


class jit(Generic[Result]):
    """`jax.jit` whose programs are let go when they have not been used lately and others need the room.

    Args:
        function: A pure function of arrays or pytrees of arrays, given by position.
        static_argnums: The arguments that are part of the program; they must be hashable.
        donate_argnums: The arguments whose memory may be used for the result.
    """

    def __init__(
        self,
        function: Callable[..., Result],
        *,
        static_argnums: tuple[int, ...] = (),
        donate_argnums: tuple[int, ...] = (),
    ):
        update_wrapper(self, function)
        self._function = function
        self._static, self._donated = static_argnums, donate_argnums
        self.n_compiled = 0  # programs made so far, those let go counted too

    def __call__(self, *arguments: object) -> Result:
        check_process()
        program = _programs.get(self._key(arguments), self._new_program)
        if program.is_compiled:
            return program.call(*arguments)
        with _compiling:
            return program.first_call(self._function.__name__, arguments)

    def clear_cache(self) -> None:
        """Let go all programs of this function, where something that it was compiled with has changed."""
        _programs.remove(lambda key: key[0] is self)

    def _key(self, arguments: tuple) -> tuple[Hashable, ...]:
        """What tells programs apart; two that JAX would compile apart may still share a key."""
        static = tuple(arguments[i] for i in self._static)
        leaves, structure = jax.tree.flatten([a for i, a in enumerate(arguments) if i not in self._static])
        return self, static, structure, tuple((np.shape(leaf), getattr(leaf, "dtype", None)) for leaf in leaves)

    def _new_program(self) -> "_Program":
        # JAX keeps a program for as long as the function it was made of, so each is made of one of its own.
        def own(*arguments: object) -> Result:
            return self._function(*arguments)

        self.n_compiled += 1
        function = update_wrapper(own, self._function)
        return _Program(jax.jit(function, static_argnums=self._static, donate_argnums=self._donated))


class _Program:
    """A function compiled for one set of shapes; what was compiled is freed with it."""

    def __init__(self, call: Callable[..., Any]):
        self.call = call
        self.is_compiled = False
        self.n_maps = 0

    def first_call(self, name: str, arguments: tuple) -> Any:
        """Compile and call, with entries of the compilation cache that cannot be read removed."""
        before = _n_maps()
        try:
            # By default JAX warns of an entry of its cache that it cannot read, and never replaces it.
            with jax_option("jax_raise_persistent_cache_errors", True):
                result = self.call(*arguments)
        except Exception:  # of the function itself, too: then the second call raises it again
            compilation_cache.remove_entries(name)
            result = self.call(*arguments)
        self.n_maps = max(0, _n_maps() - before)
        self.is_compiled = not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(result))
        return result


class _Programs:
    """The programs held, the one used last in the last place."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Hashable, ...], _Program] = OrderedDict()
        self._n_let_go = 0  # since JAX's caches were cleared
        self._lock = threading.Lock()

    def get(self, key: tuple[Hashable, ...], make: Callable[[], _Program]) -> _Program:
        """The program of this key, made where there is none."""
        with self._lock:
            program = self._held.pop(key, None)
            if program is not None:
                self._held[key] = program
                return program
        compilation_cache.use()
        self._make_room()
        with self._lock:
            if key not in self._held:  # another thread may have been first
                self._held[key] = make()
            return self._held[key]

    def remove(self, is_removed: Callable[[tuple[Hashable, ...]], bool]) -> None:
        """Let go the programs of some keys."""
        with self._lock:
            for key in [key for key in self._held if is_removed(key)]:
                del self._held[key]

    def _make_room(self) -> None:
        """Let go the older half where there are too many; all, with what JAX keeps of old ones, now and then."""
        with self._lock:
            if len(self._held) < MOST_PROGRAMS and sum(held.n_maps for held in self._held.values()) < MOST_MAPS:
                return
        with _compiling:  # so that no program is compiled between the two clearings, and held for compiled
            with self._lock:
                n_kept = max(FEWEST_PROGRAMS, len(self._held) // 2)
                n_let_go = max(0, len(self._held) - n_kept)
                for _ in range(n_let_go):
                    self._held.popitem(last=False)
                self._n_let_go += n_let_go
                clear = self._n_let_go >= CLEAR_AFTER
                if clear:
                    self._held.clear()
                    self._n_let_go = 0
            if clear:
                jax.clear_caches()  # it keeps what it traced of programs that are gone: about 1 MB a fit of a new shape
        if n_let_go:
            gc.collect()  # a program and its function refer to each other
            _give_memory_back()


def check_process() -> None:
    """Raise in a fork of a process that has computed already: JAX's threads are not there, and it would hang."""
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise RuntimeError(
            "this process was forked from one that had used JAX already, and would hang. Start processes otherwise: "
            'joblib.parallel_config(backend="loky"), which is joblib\'s default, or multiprocessing\'s "spawn".'
        )


def _n_maps() -> int:
    """Memory maps of this process; 0 where the system does not tell."""
    try:
        return Path("/proc/self/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def _give_memory_back() -> None:
    """What compilers leave in small pieces, glibc keeps for itself unless it is asked."""
    with suppress(OSError, AttributeError):  # another system, or another C library
        ctypes.CDLL(None).malloc_trim(0)


_programs = _Programs()
