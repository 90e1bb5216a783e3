"""A full disk: an error that names the path, the old file as it was, nothing left behind, and all well once there is
room again.

With the rights for it, the disk is a file system of one megabyte in memory, seen by the judging process alone. Without
them it is a limit on the length of files.
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
from faults.trial import HELD, Case, Judge, Trial
from faults.writers import REFUSALS, WRITERS, Writer, strays

OLD = b"what was there before"
NEW_NAMESPACE = 0x00020000  # CLONE_NEWNS
PAGE = 4096  # what a file system in memory gives out


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Each writer with and without a file to replace, on each kind of disk, which is full or nearly so."""
    for number in itertools.count():
        for limit, replaces, name in itertools.product(("full disk", "short files"), (True, False), WRITERS):
            share = 0.0 if number == 0 else Random(f"{seed} {number} {name}").random()
            told = f"{name}, {limit}, room for {share:.0%}, {'over a file' if replaces else 'new'}"
            yield Case(told, (name, replaces, limit, share))


def start(folder: Path, own: Path) -> Judge:
    """Make the disk, and write everything once to know its size."""
    disk = own / "disk"
    disk.mkdir()
    is_small = mounted(disk)
    known: dict[str, tuple[Writer, int]] = {}
    for name, make in WRITERS.items():
        writer = make(folder)
        path = own / f"whole {name}{writer.suffix}"
        writer.write(path, 0)
        known[name] = writer, _size(path)
    limits = {"full disk": full if is_small else short_files, "short files": short_files}

    def judge(case: tuple[str, bool, str, float]) -> str:
        name, replaces, limit, share = case
        here = disk / "here"
        here.mkdir()
        try:
            return judged(*known[name], here / f"file{known[name][0].suffix}", replaces, limits[limit], share)
        finally:
            shutil.rmtree(here)

    return judge


def judged(writer: Writer, size: int, path: Path, replaces: bool, limit: Callable, share: float) -> str:
    """HELD where the writer tells of a disk with room for a share of its file, and leaves all as it was."""
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
            return "no error" if share < 0.5 else HELD  # what was measured is not to the byte
    if _content(writer, path) != before:
        return "the old file is not as it was"
    left = strays(path.parent)
    if left:
        return f"left behind: {left}"
    writer.write(path, 0)
    return HELD


def _content(writer: Writer, path: Path) -> object:
    """What the writer's file holds; None where there is none."""
    return writer.read(path) if path.exists() else None


def _size(path: Path) -> int:
    """Of the largest file there."""
    return max((file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file()), default=0)


# Limits


def mounted(folder: Path) -> bool:
    """Whether the folder is now a small disk that this process alone sees, and that goes with it."""
    if ctypes.CDLL(None).unshare(NEW_NAMESPACE) != 0:
        return False
    commands = (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)],
    )
    return all(subprocess.run(command, check=False, capture_output=True).returncode == 0 for command in commands)


@contextmanager
def full(disk: Path, n_bytes: int) -> Iterator[None]:
    """Leave room for so many bytes, in whole pages."""
    filler = disk / "filler"
    found = os.statvfs(disk)
    room = found.f_bavail * found.f_frsize - n_bytes // PAGE * PAGE
    filler.write_bytes(bytes(max(0, room)))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def short_files(disk: Path, n_bytes: int) -> Iterator[None]:
    """Let no file be longer than this; the error is another than that of a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


TRIAL = Trial(
    "disk",
    "a full disk is told with the path; the old file is as it was, and nothing is left behind",
    size=140,
    quick=7,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
)
