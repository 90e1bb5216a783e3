"""Files written whole or not at all: a temporary file beside the target, moved into its place at the end.

A writer holds a lock on its temporary file for as long as it writes. One whose lock is free was left by a writer that
was killed, and the next writer of the same target removes it.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

try:
    import fcntl
except ImportError:  # Windows, where nothing is locked, and what killed writers left stays
    fcntl = None  # type: ignore[assignment]

StrPath = str | os.PathLike[str]
TEMPORARY = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.part", re.DOTALL)
LONGEST_KEPT = 255 - 23  # bytes of a target's name within that of its temporary file, which adds 23
SYSTEM_FOLDERS, SHARED_MEMORY = (Path("/dev"), Path("/proc")), Path("/dev/shm")  # where a file may stand for a stream


class NotAFileError(OSError):
    """The path to write to is a device, a pipe or a socket."""


def check_writable(path: StrPath) -> None:
    """Raise now the OSError that `replacing(path)` would raise later, before any work is done."""
    target = Path(os.path.realpath(path))
    found, folder = _status(target), target.parent
    if os.path.basename(path) in ("", ".") or (found is not None and stat.S_ISDIR(found.st_mode)):
        raise IsADirectoryError(f"{os.fspath(path) or target} is a folder; name a file in it")
    if (found is not None and not stat.S_ISREG(found.st_mode)) or any(map(_is_of_the_system, _links(path))):
        raise NotAFileError(f"{path} is a device, a pipe or a socket, and would be replaced by a file; name a file")
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: {folder} may not be written to; choose another folder")


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """The path of a temporary file to write to, which replaces `path` when the block ends, or is removed on any error.

    If `path` is a symbolic link, the file it points to is replaced. The new file takes over the permissions and, where
    possible, the owner of the old one; without an old one, it has the permissions that the umask leaves. Of several
    writers at the same time, the last to end wins.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    remove_abandoned(target.parent, target.name)
    before = _status(target)
    with _naming(path), _temporary(target, 0o666 if before is None else 0o600) as temporary:
        yield temporary
        _finish(temporary, before)
        os.replace(temporary, target)
    _sync_folder(target.parent)


def write_bytes(path: StrPath, content: bytes) -> None:
    """Replace the file `path` by the bytes `content`, as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: StrPath, text: str) -> None:
    """Replace the file `path` by `text` in UTF-8, as `replacing` does."""
    write_bytes(path, text.encode())


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files in `folder` whose writer was killed: those of the file `name`, or all."""
    with suppress(OSError):  # a folder that may be written to, but not listed
        for path in folder.iterdir():
            found = TEMPORARY.fullmatch(path.name)
            if found and (name is None or found["target"] == _kept(name)):
                _remove_if_abandoned(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder` during the block, against other threads and processes."""
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _links(path: StrPath) -> Iterator[str]:
    """The path, and what it points to, link by link: /dev/stdout may end at an ordinary file."""
    step = os.fspath(path)
    yield step
    while os.path.islink(step):
        step = os.path.join(os.path.dirname(step), os.readlink(step))
        yield step


def _is_of_the_system(path: str) -> bool:
    folder = Path(os.path.realpath(os.path.dirname(path)))
    return any(map(folder.is_relative_to, SYSTEM_FOLDERS)) and not folder.is_relative_to(SHARED_MEMORY)


def _kept(name: str) -> str:
    """What a temporary file's name holds of its target's: all, or a hash where the whole would be too long."""
    return name if len(os.fsencode(name)) <= LONGEST_KEPT else hashlib.sha256(os.fsencode(name)).hexdigest()


def _status(path: StrPath) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def _naming(path: StrPath) -> Iterator[None]:
    """Errors about the temporary file, or about no file at all, become errors about `path`."""
    try:
        yield
    except OSError as error:
        is_ours = error.filename is None or TEMPORARY.fullmatch(Path(str(error.filename)).name)
        if error.errno is None or isinstance(error, ConnectionError) or not is_ours:  # a broken pipe is no file's
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


@contextmanager
def _temporary(target: Path, mode: int) -> Iterator[Path]:
    """A new file beside the target, removed on any error."""
    temporary, lock = _created(target, mode)
    try:
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _created(target: Path, mode: int) -> tuple[Path, int | None]:
    """A new file beside the target, and the descriptor that keeps it locked until it is closed."""
    while True:
        temporary = target.with_name(f".{_kept(target.name)}.{token_hex(8)}.part")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        if fcntl is None:
            os.close(descriptor)  # Windows moves no open files
            return temporary, None
        with suppress(OSError):  # a file system without locks, where nobody can take it for abandoned either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = _status(temporary)
        if now is not None and os.path.samestat(now, os.fstat(descriptor)):
            return temporary, descriptor
        os.close(descriptor)  # another writer found it before it was locked, and removed it


def _remove_if_abandoned(temporary: Path) -> None:
    if fcntl is None:
        return
    with suppress(OSError):  # somebody else's, gone by now, or locked: its writer lives
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()
        finally:
            os.close(descriptor)


def _finish(temporary: Path, before: os.stat_result | None) -> None:
    """Bring it to the disk, with the owner and the permissions of the file that it is to replace."""
    descriptor = os.open(temporary, os.O_RDWR)
    try:
        if before is not None and fcntl is not None:
            for owner in ((-1, before.st_gid), (before.st_uid, -1)):
                with suppress(PermissionError):
                    os.fchown(descriptor, *owner)
            os.fchmod(descriptor, before.st_mode & 0o777)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Bring the move to the disk."""
    with suppress(OSError):  # the file is in place; not every system syncs folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
