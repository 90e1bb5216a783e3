"""Files are replaced whole or not at all: what stands at the path before, beside and after a write."""

import errno
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from anchored.storage import archive, atomic
from anchored.storage.atomic import NotAFileError, check_writable, replacing, write_bytes, write_text
from anchored.tables.writing import writing

resource = pytest.importorskip("resource", reason="limits, pipes and permissions are those of POSIX")
AS_ROOT = os.geteuid() == 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def mode_of(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def parts(folder):
    return sorted(folder.glob("*.part"))


# What is written


def test_a_file_is_replaced_when_the_block_ends(path):
    for content in ("new", "newer, and longer", ""):
        before = path.read_text() if path.exists() else None
        with replacing(path) as temporary:
            temporary.write_text(content)
            assert temporary.parent == path.parent
            assert (path.read_text() if path.exists() else None) == before
        assert path.read_text() == content
    assert os.listdir(path.parent) == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_leaves_the_old_file_alone(path, error):
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old" and os.listdir(path.parent) == ["file"]


def test_text_is_utf8(path):
    write_text(path, "Größe\n")
    assert path.read_bytes() == b"Gr\xc3\xb6\xc3\x9fe\n"


def test_a_path_may_be_relative_to_where_the_block_begins(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with replacing("file") as temporary:
        temporary.write_text("new")
        monkeypatch.chdir("elsewhere")
    assert (tmp_path / "file").read_text() == "new" and os.listdir() == []


# Permissions and owners


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o755])
def test_permissions_stay(path, mode):
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert mode_of(temporary) & ~mode & 0o077 == 0  # readable by nobody who may not read the file
    assert path.read_text() == "new" and mode_of(path) == mode


def test_new_files_have_the_permissions_of_any_new_file(path):
    write_bytes(path, b"ours")
    (path.parent / "theirs").write_bytes(b"theirs")
    assert mode_of(path) == mode_of(path.parent / "theirs")


@pytest.mark.skipif(not AS_ROOT, reason="only root may give files away")
def test_root_leaves_files_to_their_owners(path):
    path.write_text("old")
    path.chmod(0o640)
    os.chown(path, 1234, 2345)
    write_text(path, "new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, mode_of(path)) == (1234, 2345, 0o640)


# What a path may be


@pytest.mark.parametrize("exists", [True, False], ids=["to a file", "dangling"])
def test_links_stay_and_what_they_point_to_is_written(tmp_path, exists):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to("folder/target")
    if exists:
        target.write_text("old")
    check_writable(link)
    write_text(link, "new")
    assert os.readlink(link) == "folder/target" and target.read_text() == "new"
    assert os.listdir(tmp_path / "folder") == ["target"] and sorted(os.listdir(tmp_path)) == ["folder", "link"]


def refused(path, error, message):
    """Whether both refuse it, and leave everything as it was."""
    kind, around = (path.lstat().st_mode, sorted(os.listdir(path.parent))) if os.path.lexists(path) else (None, None)
    for write in (check_writable, lambda path: write_text(path, "new")):
        with pytest.raises(error, match=message) as raised:
            write(path)
        assert str(path) in str(raised.value)
    if kind is not None:
        assert (path.lstat().st_mode, sorted(os.listdir(path.parent))) == (kind, around)


def test_what_is_no_file_is_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        for name in ("pipe", "socket"):
            (tmp_path / f"link to {name}").symlink_to(name)
            for path in (tmp_path / name, tmp_path / f"link to {name}"):
                refused(path, NotAFileError, "is a device, a pipe or a socket")
    (tmp_path / "link to a folder").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "link to a folder"):
        refused(path, IsADirectoryError, "is a folder; name a file in it")
    refused(tmp_path / "no" / "file", FileNotFoundError, r"there is no folder .*no; create it first")
    refused(tmp_path / "pipe" / "file", FileNotFoundError, r"there is no folder .*pipe; create it first")
    (tmp_path / "loop").symlink_to("loop")
    refused(tmp_path / "loop", OSError, "symbolic links")


def test_what_names_a_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, told in (("new/", "new/"), ("new/.", "new/."), ("", str(tmp_path)), (".", ".")):
        for write in (check_writable, lambda path: write_text(path, "new")):
            with pytest.raises(IsADirectoryError, match=f"^{re.escape(told)} is a folder; name a file in it"):
                write(name)
    assert os.listdir() == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are files of Linux")
def test_streams_that_lead_to_a_file_are_refused(path):
    path.write_text("old")
    with path.open() as opened:
        (path.parent / "link").symlink_to(f"/dev/fd/{opened.fileno()}")
        streams = (f"/dev/fd/{opened.fileno()}", f"/proc/self/fd/{opened.fileno()}", str(path.parent / "link"))
        for stream in streams:
            for write in (check_writable, lambda path: write_text(path, "new")):
                with pytest.raises(NotAFileError, match=f"^{re.escape(stream)} is a device, a pipe or a socket"):
                    write(stream)
    assert path.read_text() == "old"


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no shared memory")
def test_shared_memory_holds_files():
    check_writable("/dev/shm/model")


@pytest.mark.parametrize("length", [232, 233, 255])
def test_names_as_long_as_the_system_allows(tmp_path, length):
    path, other = (tmp_path / ("é" + letter * (length - 2)) for letter in "no")
    with replacing(path) as temporary:
        temporary.write_text("new")
        left = temporary.with_name(temporary.name[:-21] + "0" * 16 + ".part")
        left.touch()  # as by a writer that was killed
    write_text(other, "other")
    assert path.read_text() == "new" and left.exists()  # which belongs to one of the two alone
    write_text(path, "newer")
    assert path.read_text() == "newer" and set(os.listdir(tmp_path)) == {path.name, other.name}


def test_a_name_that_is_too_long_is_told_at_once(tmp_path):
    refused(tmp_path / ("n" * 256), OSError, os.strerror(errno.ENAMETOOLONG))


@pytest.mark.skipif(not AS_ROOT, reason="only root may make a device, or replace one")
def test_devices_are_refused(tmp_path):
    """A null device of our own: should the check fail, that of the machine is not lost."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError:
        pytest.skip("this system lets nobody make devices")
    (tmp_path / "link").symlink_to(device)
    for path in (device, tmp_path / "link"):
        refused(path, NotAFileError, "is a device, a pipe or a socket")
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
def test_a_folder_without_permission(tmp_path):
    (tmp_path / "folder").mkdir(mode=0o500)
    refused(tmp_path / "folder" / "file", PermissionError, "is not writable; choose another folder")


# Errors name the file


@pytest.fixture
def small_disk():
    """Files longer than 64 KiB cannot be written, with an error that is met on a full disk, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_table(path):
    with writing(path) as write:
        for _ in range(8):
            write({"numbers": np.random.default_rng(0).random(2**13)})


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("model", lambda path: archive.write(path, {}, {"array": np.zeros(2**16)})),
        ("table.csv", write_table),
        ("table.parquet", write_table),
    ],
)
def test_a_disk_that_is_too_small_is_told_with_the_path(tmp_path, small_disk, name, write):
    (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as raised:
        write(tmp_path / name)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(tmp_path / name))
    assert (tmp_path / name).read_text() == "old" and os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_errors_without_a_file_are_those_of_the_target(path, number):
    with pytest.raises(OSError, match=f": '{path}'$") as raised, replacing(path):
        raise OSError(number, "of a library that does not say where")
    assert raised.value.errno == number and type(raised.value) is type(OSError(number, ""))


def test_other_errors_stay_what_they_are(path):
    for error in (FileNotFoundError(errno.ENOENT, "", "another"), BrokenPipeError(errno.EPIPE, ""), OSError("words")):
        with pytest.raises(OSError) as raised, replacing(path):
            raise error
        assert raised.value is error
    assert os.listdir(path.parent) == []


# Several writers, and those that were killed

WRITER = """
import sys, time
from anchored.storage.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    time.sleep(60)
"""


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(path):
    path.write_text("old")
    unlike = path.parent / ".file.notes.part", path.parent / f".file.more.{'0' * 16}.part"  # others' files
    for other in unlike:
        other.touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        left = Path(process.stdout.readline().strip())
        write_text(path, "newer")
        assert left.read_text() == "half"  # its writer lives
        process.kill()
    assert process.returncode < 0 and path.read_text() == "newer" and left.exists()
    write_text(path, "newest")
    assert path.read_text() == "newest" and parts(path.parent) == sorted(unlike)
    atomic.remove_abandoned(path.parent)
    assert parts(path.parent) == [unlike[0]]


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_made_again(path, monkeypatch):
    flock, calls = atomic.fcntl.flock, []

    def late(descriptor, operation):
        if not calls:
            calls.append(parts(path.parent))
            atomic.remove_abandoned(path.parent)
        flock(descriptor, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", late)
    write_text(path, "new")
    assert len(calls[0]) == 1 and path.read_text() == "new" and os.listdir(path.parent) == ["file"]


MANY = """
import sys
from anchored.storage.atomic import write_bytes
for i in range(40):
    write_bytes(sys.argv[1], sys.argv[2].encode() * 50_000)
"""


def test_many_writers_do_not_disturb_each_other(path):
    """In processes and in threads: at any time the file is whole, and of one of them."""
    whole = {letter.encode() * 50_000 for letter in "abcd"}
    write_bytes(path, b"a" * 50_000)
    processes = [subprocess.Popen([sys.executable, "-c", MANY, str(path), letter]) for letter in "ab"]
    errors = []

    def write(letter):
        try:
            for _ in range(40):
                write_bytes(path, letter.encode() * 50_000)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in "cd"]
    for thread in threads:
        thread.start()
    while any(process.poll() is None for process in processes) or any(thread.is_alive() for thread in threads):
        assert path.read_bytes() in whole
    assert errors == [] and [process.returncode for process in processes] == [0, 0]
    assert path.read_bytes() in whole and os.listdir(path.parent) == ["file"]


def test_one_block_at_a_time_in_a_locked_folder(tmp_path):
    inside, most = [], []

    def block():
        with atomic.locked(tmp_path):
            inside.append(None)
            time.sleep(1e-3)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=block) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 20
