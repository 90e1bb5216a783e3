"""Paths that are not plain files: refused or followed, never replaced; permissions stay."""

import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from faults import writers
from faults.trial import HELD, Case, Judge, Trial
from faults.writers import REFUSALS, WRITERS, Writer, strays

PRIVATE = 0o600


def plain(path: Path) -> None:
    """Nothing there yet."""


def private(path: Path) -> None:
    """A file that its owner alone may read."""
    path.touch(PRIVATE)


def shared(path: Path) -> None:
    """A file that a group may write to."""
    path.touch()
    path.chmod(0o664)


def link(path: Path) -> None:
    """A link to a private file elsewhere."""
    (path.parent / "elsewhere").mkdir()
    (path.parent / "elsewhere" / "target").touch(PRIVATE)
    path.symlink_to(Path("elsewhere", "target"))


def dangling_link(path: Path) -> None:
    """A link to a file that is not there yet."""
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(Path("elsewhere", "target"))


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path)


def folder(path: Path) -> None:
    """A folder with something in it."""
    path.mkdir()
    (path / "something").touch()


def pipe(path: Path) -> None:
    """A named pipe that nobody reads."""
    os.mkfifo(path)


def device(path: Path) -> None:
    """A null device of our own: should it be replaced, that of the machine is not lost."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def link_to_device(path: Path) -> None:
    """A link to such a device."""
    device(path.parent / "null")
    path.symlink_to("null")


def folder_gone(path: Path) -> None:
    """A folder that is not there."""
    path.parent.rmdir()


TO_FOLLOW: tuple[Callable[[Path], None], ...] = (plain, private, shared, link, dangling_link)
TO_REFUSE: tuple[Callable[[Path], None], ...] = (loop, folder, pipe, device, link_to_device, folder_gone)
FILE_WRITERS = [name for name in WRITERS if name != "store a result"]  # which makes a folder of its own


def cases(seed: int, shared_folder: Path) -> Iterator[Case]:
    """Every writer onto every kind of path, in any order; those that only root may make are left out for others."""
    kinds = [kind for kind in (*TO_FOLLOW, *TO_REFUSE) if os.geteuid() == 0 or kind not in (device, link_to_device)]
    pairs = list(itertools.product(FILE_WRITERS, kinds))
    for name, kind in Random(seed).sample(pairs, len(pairs)):
        yield Case(f"{name} onto {kind.__name__.replace('_', ' ')}", (name, kind.__name__))


def start(shared_folder: Path, own: Path) -> Judge:
    """Make the writers."""
    known = {name: WRITERS[name](shared_folder) for name in FILE_WRITERS}
    kinds = {kind.__name__: kind for kind in (*TO_FOLLOW, *TO_REFUSE)}

    def judge(case: tuple[str, str]) -> str:
        writer, kind = known[case[0]], kinds[case[1]]
        here = Path(tempfile.mkdtemp(dir=own))
        path = here / "inside" / f"file{writer.suffix}"
        path.parent.mkdir()
        try:
            kind(path)
            return judged(writer, path, kind)
        finally:
            shutil.rmtree(here)

    return judge


def judged(writer: Writer, path: Path, kind: Callable[[Path], None]) -> str:
    """HELD where the writer does with such a path what it should."""
    return _followed(writer, path) if kind in TO_FOLLOW else _refused(writer, path)


def _followed(writer: Writer, path: Path) -> str:
    """Written, with the link and the permissions that were there; a link may be refused instead."""
    is_link, mode = path.is_symlink(), _mode(path)
    try:
        writer.write(path, 0)
    except REFUSALS as error:
        return HELD if is_link and str(path) in str(error) else f"refused: {error}"
    if path.is_symlink() != is_link:
        return "the link is gone"
    if mode is not None and _mode(path) != mode:
        return f"permissions were {mode:o} and are {_mode(path):o}"
    writer.read(path)
    left = strays(path.parent)
    return f"left behind: {left}" if left else HELD


def _refused(writer: Writer, path: Path) -> str:
    """With an error that names the path, and everything as it was."""
    before = _listed(path.parent)
    try:
        writer.write(path, 0)
    except REFUSALS as error:
        if str(path if path.parent.exists() else path.parent) not in str(error):
            return f"does not name the path: {error}"
        return HELD if _listed(path.parent) == before else "something else is there now"
    return "no error"


def _mode(path: Path) -> int | None:
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _listed(folder: Path) -> dict[str, int]:
    """What is in a folder, and of what kind."""
    return {str(path): path.lstat().st_mode for path in folder.rglob("*")}


SIZE = sum(1 for _ in cases(0, Path()))
TRIAL = Trial(
    "writing",
    "pipes, devices and folders are refused, links are followed, permissions stay",
    size=SIZE,
    quick=22,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
)
