"""Atomic writes: content is written to a temporary file next to the target, which then replaces the target.

A process locks its temporary file while it writes. A temporary file that is not locked was abandoned by a process that
was killed. The next process that writes the same target removes it.
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
except ImportError:  # Windows: files are not locked, and abandoned temporary files are not removed
    fcntl = None  # type: ignore[assignment]

StrPath = str | os.PathLike[str]
# Names of temporary files
TEMPORARY = re.compile(r"\.(?P<target>.+)\.[0-9a-f]{16}\.part", re.DOTALL)
MAX_NAME_BYTES = 255 - 23  # longest name of a target that fits in a temporary file's name, which has 23 more bytes
SYSTEM_FOLDERS = (Path("/dev"), Path("/proc"))  # folders of devices and streams, which must not be replaced by files
SHARED_MEMORY = Path("/dev/shm")  # a folder in /dev that holds ordinary files


class NotAFileError(OSError):
    """Raised if the path to write to is a device, a pipe or a socket."""


def check_writable(path: StrPath) -> None:
    """Raise an OSError if a file cannot be written at `path`.

    Call it before a long computation whose result will be written, so that the error is raised early.
    """
    target = Path(os.path.realpath(path))
    status, folder = _status(target), target.parent
    if os.path.basename(path) in ("", ".") or (status is not None and stat.S_ISDIR(status.st_mode)):
        raise IsADirectoryError(f"{os.fspath(path) or target} is a folder; name a file in it")
    if (status is not None and not stat.S_ISREG(status.st_mode)) or any(map(_is_system_path, _links(path))):
        raise NotAFileError(f"{path} is a device, a pipe or a socket, and would be replaced by a file; name a file")
    if not folder.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: the folder {folder} is not writable; choose another folder")


@contextmanager
def replacing(path: StrPath) -> Iterator[Path]:
    """Context manager that replaces the file `path` when the block ends, or leaves it unchanged if there is an error.

    If `path` is a symbolic link, the file that it points to is replaced. The new file has the permissions and, where
    possible, the owner of the old one. If there was no file, it has the default permissions (umask). If several
    processes write at the same time, the result is that of the last one to finish.

    Parameters
    ----------
    path : path
        File to create or replace.

    Yields
    ------
    Path
        Temporary file to write to.

    Raises
    ------
    OSError
        If the file cannot be written. If `path` is a device, a pipe or a socket, it is a `NotAFileError`.
    """
    check_writable(path)
    target = Path(os.path.realpath(path))
    remove_abandoned(target.parent, target.name)
    before = _status(target)
    with _errors_about(path), _temporary(target, 0o666 if before is None else 0o600) as temporary:
        yield temporary
        _finish(temporary, before)
        os.replace(temporary, target)
    _sync_folder(target.parent)


def write_bytes(path: StrPath, content: bytes) -> None:
    """Write the bytes `content` to the file `path` as `replacing` does."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: StrPath, text: str) -> None:
    """Write `text`, encoded as UTF-8, to the file `path` as `replacing` does."""
    write_bytes(path, text.encode())


def remove_abandoned(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files that killed processes have left in `folder`.

    If `name` is the name of a target, only its temporary files are removed.
    """
    with suppress(OSError):  # the user may be allowed to write to the folder, but not to list it
        for path in folder.iterdir():
            match = TEMPORARY.fullmatch(path.name)
            if match and (name is None or match["target"] == _short_name(name)):
                _remove_if_abandoned(path)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Context manager that locks `folder`, so that only one thread of all processes is in such a block at a time.

    It has no effect on Windows, or on file systems without locks.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # the file system may have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _links(path: StrPath) -> Iterator[str]:
    """Yield `path` and, if it is a symbolic link, every path on the way to the file that it points to.

    All are needed, since a stream such as /dev/stdout may be a link to a file.
    """
    current = os.fspath(path)
    yield current
    while os.path.islink(current):
        current = os.path.join(os.path.dirname(current), os.readlink(current))
        yield current


def _is_system_path(path: str) -> bool:
    """Return whether `path` is in one of SYSTEM_FOLDERS, where writing would replace a stream by a file."""
    folder = Path(os.path.realpath(os.path.dirname(path)))
    return any(map(folder.is_relative_to, SYSTEM_FOLDERS)) and not folder.is_relative_to(SHARED_MEMORY)


def _short_name(name: str) -> str:
    """Return the part of a temporary file's name that identifies its target: `name`, or a hash if it is too long."""
    return name if len(os.fsencode(name)) <= MAX_NAME_BYTES else hashlib.sha256(os.fsencode(name)).hexdigest()


def _status(path: StrPath) -> os.stat_result | None:
    """Return the status of the file `path`, or None if there is no such file."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def _errors_about(path: StrPath) -> Iterator[None]:
    """Context manager that makes errors that name the temporary file, or no file, name `path` instead."""
    try:
        yield
    except OSError as error:
        is_ours = error.filename is None or TEMPORARY.fullmatch(Path(str(error.filename)).name)
        # A ConnectionError is not about the file, but about a pipe or a socket that the block uses
        if error.errno is None or isinstance(error, ConnectionError) or not is_ours:
            raise
        raise OSError(error.errno, os.strerror(error.errno), os.fspath(path)) from error


@contextmanager
def _temporary(target: Path, mode: int) -> Iterator[Path]:
    """Context manager that creates a temporary file next to `target`, and removes it if there is an error.

    `mode` holds the permissions of the file, from which the umask removes some.
    """
    temporary, lock = _create(target, mode)
    try:
        yield temporary
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _create(target: Path, mode: int) -> tuple[Path, int | None]:
    """Create a temporary file next to `target`, with the permissions `mode`.

    Returns its path, and a descriptor that keeps it locked until the descriptor is closed (None on Windows).
    """
    while True:
        temporary = target.with_name(f".{_short_name(target.name)}.{token_hex(8)}.part")
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        if fcntl is None:
            os.close(descriptor)  # Windows cannot rename an open file
            return temporary, None
        with suppress(OSError):  # the file system may have no locks; abandoned files are then not removed either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        now = _status(temporary)
        if now is not None and os.path.samestat(now, os.fstat(descriptor)):
            return temporary, descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def _remove_if_abandoned(temporary: Path) -> None:
    """Remove a temporary file that no process has locked."""
    if fcntl is None:
        return
    with suppress(OSError):  # it belongs to another user, is already removed, or is locked
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            temporary.unlink()
        finally:
            os.close(descriptor)


def _finish(temporary: Path, before: os.stat_result | None) -> None:
    """Flush the temporary file to disk, with the owner and the permissions of the file that it replaces.

    `before` is the status of that file; None if there is none.
    """
    descriptor = os.open(temporary, os.O_RDWR)
    try:
        if before is not None and fcntl is not None:  # Windows has neither
            for owner in ((-1, before.st_gid), (before.st_uid, -1)):
                with suppress(PermissionError):  # a user may be allowed to change the group, but not the owner
                    os.fchown(descriptor, *owner)
            os.fchmod(descriptor, before.st_mode & 0o777)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """Flush the folder to disk, so that the renamed file is found after a crash."""
    with suppress(OSError):  # not every system can flush folders, and the file is already in place
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
