"""The folder in which JAX keeps compiled programs for later processes.

JAX executes whatever is in its cache, so nobody but the user may be able to write to the folder. JAX writes entries in
place and never replaces them. A process that is killed while it writes leaves a truncated entry, about which every
later process would warn, so `compilation` removes entries that cannot be read.
"""

import os
import re
import stat
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path

import jax

MIN_SECONDS = 0.05  # programs that compile in less time are not stored
MAX_BYTES = 2**29  # if all entries take more, the least recently used are removed
CALLS_PER_CHECK = 50  # calls of `use` between two checks of the folder's size
ENTRY = re.compile("jit_.+-[0-9a-f]{64}-cache")  # file names of JAX's entries

_n_calls = count()  # counts the calls of `use`
_folder: Path | None = None  # None if there is no cache, or if the user has set JAX's cache folder


def use() -> None:
    """Make JAX use the cache, unless the user has set JAX's cache folder.

    The folder is that named by the environment variable ANCHORED_CACHE, by default `anchored` in the user's cache
    folder. The value "off" means no cache. This function must be called before each compilation. Every 50th call
    removes the least recently used entries if the cache has grown too large.
    """
    global _folder
    n_earlier_calls = next(_n_calls)
    if n_earlier_calls == 0 and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        _folder = _own_folder()
        if _folder is not None:
            jax.config.update("jax_compilation_cache_dir", str(_folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", MIN_SECONDS)
    if _folder is not None and n_earlier_calls % CALLS_PER_CHECK == 0:
        _remove_oldest(_folder, MAX_BYTES)


def _own_folder() -> Path | None:
    """Return the folder of the cache, and create it if necessary. None if the cache is off or cannot be used."""
    setting = os.environ.get("ANCHORED_CACHE", "")
    if setting.lower() == "off":
        return None
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anchored"
    folder = Path(setting).expanduser() if setting else default
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except (OSError, RuntimeError) as error:
        _warn_unusable(folder, f"cannot be used ({error})")
        return None
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        _warn_unusable(folder, "belongs to another user")
        return None
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        _warn_unusable(folder, "is writable by other users")
        return None
    if not setting:
        folder.chmod(0o700)
    return folder


def _warn_unusable(folder: Path, why: str) -> None:
    """Warn that the cache in `folder` is not used. `why` is the rest of a sentence that begins with the folder."""
    warnings.warn(
        f"the compilation cache {folder} {why}, so compiled programs are not kept for later processes. Set the "
        'environment variable ANCHORED_CACHE to a folder that only you can write to, or to "off".',
        stacklevel=2,
    )


def remove_entries(name: str) -> None:
    """Remove all cached programs of functions called `name`."""
    if _folder is not None:
        for entry in _entries(_folder):
            if entry.name.startswith(f"jit_{name}-"):
                _remove(entry)


def _remove_oldest(folder: Path, max_bytes: int) -> None:
    """Remove the least recently used entries until the others take at most `max_bytes`."""
    found = [(status, entry) for entry in _entries(folder) if (status := _status(entry)) is not None]
    total = sum(status.st_size for status, _ in found)
    for status, entry in sorted(found, key=lambda pair: max(pair[0].st_atime, pair[0].st_mtime)):
        if total <= max_bytes:
            return
        _remove(entry)
        total -= status.st_size


def _entries(folder: Path) -> list[Path]:
    """Return the files in the folder that have names of JAX's entries. No others are ever removed."""
    try:
        return [path for path in folder.iterdir() if ENTRY.fullmatch(path.name)]
    except OSError:
        return []


def _status(entry: Path) -> os.stat_result | None:
    """Return the status of an entry, or None if another process has removed it."""
    try:
        return entry.stat()
    except OSError:
        return None


def _remove(entry: Path) -> None:
    """Remove an entry, and ignore errors."""
    with suppress(OSError):
        entry.unlink(missing_ok=True)
