"""Keep compiled programs between processes, in a folder that nobody but its owner can write to.

JAX runs what it finds in its cache, so the folder must be the user's own. JAX also writes entries in place, so that a
process that is killed leaves one cut short, and never replaces an entry: every later process would warn of it.
"""

import os
import re
import stat
import warnings
from contextlib import suppress
from itertools import count
from pathlib import Path

import jax

WORTH_KEEPING = 0.05  # seconds of compilation
MOST_BYTES = 2**29
PROGRAMS_A_LOOK = 50  # new programs between two looks at the folder's size
ENTRY = re.compile("jit_.+-[0-9a-f]{64}-cache")  # how JAX names its files

_n_calls = count()
_folder: Path | None = None  # None while the cache is not ours, or off


def use() -> None:
    """Have JAX look for the next program in the cache, unless the user has set a cache of their own.

    It lies in the folder named by $ANCHORED_CACHE ("off" for none), otherwise in `anchored` in the user's cache folder.
    Call it before a program is compiled: now and then it removes the entries used longest ago.
    """
    global _folder
    n = next(_n_calls)
    if n == 0 and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        _folder = _own_folder()
        if _folder is not None:
            jax.config.update("jax_compilation_cache_dir", str(_folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
    if _folder is not None and n % PROGRAMS_A_LOOK == 0:
        _remove_oldest(_folder, MOST_BYTES)


def _own_folder() -> Path | None:
    """The folder, made where it is missing; None where there is to be none, or where others could write to it."""
    named = os.environ.get("ANCHORED_CACHE", "")
    if named.lower() == "off":
        return None
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anchored"
    folder = Path(named).expanduser() if named else default
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except (OSError, RuntimeError) as error:
        return _unusable(folder, f"cannot be used ({error})")
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        return _unusable(folder, "belongs to another user")
    if os.name == "posix" and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return _unusable(folder, "may be written to by others")
    if not named:
        folder.chmod(0o700)
    return folder


def _unusable(folder: Path, why: str) -> Path | None:
    warnings.warn(
        f"the compilation cache {folder} {why}, so compiled programs are not kept for later processes. Set the "
        'environment variable ANCHORED_CACHE to a folder of your own, or to "off".',
        stacklevel=2,
    )
    return None


def remove_entries(name: str) -> None:
    """Remove the entries of the functions of this name, one of which cannot be read."""
    if _folder is not None:
        for entry in _entries(_folder):
            if entry.name.startswith(f"jit_{name}-"):
                _remove(entry)


def _remove_oldest(folder: Path, most_bytes: int) -> None:
    """Remove the entries used longest ago until the others have at most `most_bytes`."""
    found = [(status, entry) for entry in _entries(folder) if (status := _status(entry)) is not None]
    total = sum(status.st_size for status, _ in found)
    for status, entry in sorted(found, key=lambda pair: max(pair[0].st_atime, pair[0].st_mtime)):
        if total <= most_bytes:
            return
        _remove(entry)
        total -= status.st_size


def _entries(folder: Path) -> list[Path]:
    """Files that are named as JAX names its entries; whatever else lies in the folder is the user's."""
    try:
        return [path for path in folder.iterdir() if ENTRY.fullmatch(path.name)]
    except OSError:
        return []


def _status(entry: Path) -> os.stat_result | None:
    """None where another process has removed it meanwhile."""
    try:
        return entry.stat()
    except OSError:
        return None


def _remove(entry: Path) -> None:
    with suppress(OSError):
        entry.unlink(missing_ok=True)
