"""Writing to paths that are not plain files: links are followed, others give an error, and permissions stay."""

import itertools
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from faults import writers
from faults.trial import HELD, Case, Check, Trial
from faults.writers import REFUSALS, WRITERS, Writer, temporary_files

PRIVATE = 0o600


# Kinds of paths: each function makes one of its kind at `path`


def plain(path: Path) -> None:
    """Make nothing: `path` does not exist yet."""


def private(path: Path) -> None:
    """Make a file that only its owner may read."""
    path.touch(PRIVATE)


def shared(path: Path) -> None:
    """Make a file that its group may write to."""
    path.touch()
    path.chmod(0o664)


def link(path: Path) -> None:
    """Make a link to a private file in another folder."""
    (path.parent / "elsewhere").mkdir()
    (path.parent / "elsewhere" / "target").touch(PRIVATE)
    path.symlink_to(Path("elsewhere", "target"))


def dangling_link(path: Path) -> None:
    """Make a link to a file that does not exist yet."""
    (path.parent / "elsewhere").mkdir()
    path.symlink_to(Path("elsewhere", "target"))


def loop(path: Path) -> None:
    """Make a link to itself."""
    path.symlink_to(path)


def folder(path: Path) -> None:
    """Make a folder that is not empty."""
    path.mkdir()
    (path / "something").touch()


def pipe(path: Path) -> None:
    """Make a named pipe without a reader."""
    os.mkfifo(path)


def device(path: Path) -> None:
    """Make a null device of our own, so that the machine's is not lost if a writer replaces it."""
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))


def link_to_device(path: Path) -> None:
    """Make a link to a null device."""
    device(path.parent / "null")
    path.symlink_to("null")


def missing_folder(path: Path) -> None:
    """Remove the folder of `path`."""
    path.parent.rmdir()


TO_FOLLOW: tuple[Callable[[Path], None], ...] = (plain, private, shared, link, dangling_link)
TO_REFUSE: tuple[Callable[[Path], None], ...] = (loop, folder, pipe, device, link_to_device, missing_folder)
FILE_WRITERS = [name for name in WRITERS if name != "store a result"]  # "store a result" makes a folder


def cases(seed: int, shared_folder: Path) -> Iterator[Case]:
    """Yield every writer with every kind of path, in a random order drawn with `seed`; only root can make devices.

    `shared_folder` is not used.
    """
    kinds = [kind for kind in (*TO_FOLLOW, *TO_REFUSE) if os.geteuid() == 0 or kind not in (device, link_to_device)]
    pairs = list(itertools.product(FILE_WRITERS, kinds))
    for name, kind in Random(seed).sample(pairs, len(pairs)):
        yield Case(f"{name} onto {kind.__name__.replace('_', ' ')}", (name, kind.__name__))


def start(shared_folder: Path, scratch: Path) -> Check:
    """Make the writers from the models in `shared_folder`, and return the check, which writes in `scratch`."""
    known = {name: WRITERS[name](shared_folder) for name in FILE_WRITERS}
    kinds = {kind.__name__: kind for kind in (*TO_FOLLOW, *TO_REFUSE)}

    def check(case: tuple[str, str]) -> str:
        writer, kind = known[case[0]], kinds[case[1]]
        temporary = Path(tempfile.mkdtemp(dir=scratch))
        path = temporary / "inside" / f"file{writer.suffix}"
        path.parent.mkdir()
        try:
            kind(path)
            return check_write(writer, path, kind)
        finally:
            shutil.rmtree(temporary)

    return check


def check_write(writer: Writer, path: Path, kind: Callable[[Path], None]) -> str:
    """Return HELD if the `writer` treats `path`, which is of this `kind`, correctly."""
    return _followed(writer, path) if kind in TO_FOLLOW else _refused(writer, path)


def _followed(writer: Writer, path: Path) -> str:
    """Return HELD if the file is written, and neither a link nor permissions changed; a link may also be refused."""
    is_link, mode = path.is_symlink(), _mode(path)
    try:
        writer.write(path, 0)
    except REFUSALS as error:
        return HELD if is_link and str(path) in str(error) else f"refused: {error}"
    if path.is_symlink() != is_link:
        return "the link was replaced"
    if mode is not None and _mode(path) != mode:
        return f"permissions were {mode:o} and are {_mode(path):o}"
    writer.read(path)
    left = temporary_files(path.parent)
    return f"left behind: {left}" if left else HELD


def _refused(writer: Writer, path: Path) -> str:
    """Return HELD if writing raises an error that names the path, and changes nothing."""
    before = _modes(path.parent)
    try:
        writer.write(path, 0)
    except REFUSALS as error:
        if str(path if path.parent.exists() else path.parent) not in str(error):
            return f"does not name the path: {error}"
        return HELD if _modes(path.parent) == before else "the folder was changed"
    return "no error"


def _mode(path: Path) -> int | None:
    """Return the permissions of a file; None if it does not exist."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def _modes(folder: Path) -> dict[str, int]:
    """Return the types and permissions (modes) of all files in a folder, by path."""
    return {str(path): path.lstat().st_mode for path in folder.rglob("*")}


SIZE = sum(1 for _ in cases(0, Path()))
TRIAL = Trial(
    "writing",
    "writing to a pipe, device or folder raises an error; links are followed, and permissions stay",
    size=SIZE,
    quick=22,
    cases=cases,
    start=start,
    prepare=writers.prepare,
    seconds=60,
)
