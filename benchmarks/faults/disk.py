"""A full disk: the error names the path, the old file is unchanged, no other file is left, and writing works again.

If this process may mount file systems, the disk is a file system of one megabyte in memory, which only this process
sees. Otherwise a limit on the length of files takes its place.
"""

import ctypes
import itertools
import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from faults import writers
from faults.trial import HELD, Case, Check, Trial
from faults.writers import REFUSALS, WRITERS, Writer, temporary_files

OLD = b"the old file"
NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
PAGE = 4096  # allocation unit of a file system in memory


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield each writer with and without a file to replace, on each kind of disk.

    First there is no room at all, then room for a share of the file, which is drawn with `seed`. `folder` is not used.
    """
    for number in itertools.count():
        for limit, replaces, name in itertools.product(("full disk", "short files"), (True, False), WRITERS):
            share = 0.0 if number == 0 else Random(f"{seed} {number} {name}").random()
            description = f"{name}, {limit}, room for {share:.0%}, {'over a file' if replaces else 'new'}"
            yield Case(description, (name, replaces, limit, share))


def start(folder: Path, scratch: Path) -> Check:
    """Make the disk in `scratch`, write every file once to measure its size, and return the check.

    `folder` contains the models that the writers use.
    """
    disk = scratch / "disk"
    disk.mkdir()
    is_small = mount_small_disk(disk)
    known: dict[str, tuple[Writer, int]] = {}
    for name, make in WRITERS.items():
        writer = make(folder)
        path = scratch / f"whole {name}{writer.suffix}"
        writer.write(path, 0)
        known[name] = writer, _size(path)
    limits = {"full disk": full if is_small else short_files, "short files": short_files}

    def check(case: tuple[str, bool, str, float]) -> str:
        name, replaces, limit, share = case
        temporary = disk / "temporary"
        temporary.mkdir()
        try:
            return check_write(*known[name], temporary / f"file{known[name][0].suffix}", replaces, limits[limit], share)
        finally:
            shutil.rmtree(temporary)

    return check


def check_write(writer: Writer, size: int, path: Path, replaces: bool, limit: Callable, share: float) -> str:
    """Return HELD if a writer reports that the disk is full, and leaves everything as it was.

    Parameters
    ----------
    writer
        The writer.
    size
        Size of its file, in bytes.
    path
        Path that it writes to.
    replaces
        Whether there is a file already, which it replaces.
    limit
        `full` or `short_files`: returns the context in which there is too little room.
    share
        Share of the file that there is room for.
    """
    if replaces and writer.read is Path.read_bytes:
        path.write_bytes(OLD)
    elif replaces:
        writer.write(path, 1)
    before = _content(writer, path)
    with limit(path.parent.parent, int(share * size)):
        try:
            writer.write(path, 0)
        except REFUSALS as error:
            if str(path) not in str(error):
                return f"does not name the path: {error}"
        else:
            return "no error" if share < 0.5 else HELD  # the size is not exact to the byte
    if _content(writer, path) != before:
        return "the old file was changed"
    left = temporary_files(path.parent)
    if left:
        return f"left behind: {left}"
    writer.write(path, 0)
    return HELD


def _content(writer: Writer, path: Path) -> object:
    """Return the content of the writer's file; None if there is none."""
    return writer.read(path) if path.exists() else None


def _size(path: Path) -> int:
    """Return the size of the file `path`, or of the largest file in the folder `path`."""
    return max((file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file()), default=0)


# Limits


def mount_small_disk(folder: Path) -> bool:
    """Mount a disk of one megabyte on `folder`, which only this process sees; return whether that was possible."""
    if ctypes.CDLL(None).unshare(NEW_NAMESPACE) != 0:
        return False
    commands = (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
    )
    return all(subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in commands)


@contextmanager
def full(disk: Path, n_bytes: int) -> Iterator[None]:
    """Return a context in which only `n_bytes` are free on `disk`, rounded down to whole pages."""
    filler = disk / "filler"
    space = os.statvfs(disk)
    room = space.f_bavail * space.f_frsize - n_bytes // PAGE * PAGE
    filler.write_bytes(bytes(max(0, room)))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def short_files(disk: Path, n_bytes: int) -> Iterator[None]:
    """Return a context in which no file may be longer than `n_bytes`, on any `disk`.

    The error of the system differs from that of a full disk.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


TRIAL = Trial(
    "disk",
    "if the disk is full, the error names the path; the old file is unchanged, and no other file is left",
    size=140,
    quick=7,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
)
