"""Files are replaced completely or not at all, also if writing fails, is killed or happens in several processes."""

import errno
import os
import re
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from anchored.storage import archive, atomic
from anchored.storage.atomic import replacing, write_bytes, write_text
from anchored.tables.writing import writing

resource = pytest.importorskip("resource", reason="limits and permissions are those of POSIX")


@pytest.fixture
def path(tmp_path):
    """A path at which there is no file yet."""
    return tmp_path / "file"


def permissions(path):
    """Return the permission bits of a file."""
    return stat.S_IMODE(os.stat(path).st_mode)


def temporary_files(folder):
    """Return the temporary files in a folder."""
    return sorted(folder.glob("*.part"))


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
def test_an_error_leaves_the_old_file_unchanged(path, error):
    path.write_text("old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old" and os.listdir(path.parent) == ["file"]


def test_text_is_utf8(path):
    write_text(path, "Größe\n")
    assert path.read_bytes() == b"Gr\xc3\xb6\xc3\x9fe\n"


def test_a_relative_path_is_that_at_the_start_of_the_block(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with replacing("file") as temporary:
        temporary.write_text("new")
        monkeypatch.chdir("elsewhere")
    assert (tmp_path / "file").read_text() == "new" and os.listdir() == []


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o755])
def test_permissions_are_kept(path, mode):
    path.write_text("old")
    path.chmod(mode)
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert permissions(temporary) & ~mode & 0o077 == 0  # nobody else gains access meanwhile
    assert path.read_text() == "new" and permissions(path) == mode


def test_new_files_have_the_default_permissions(path):
    write_bytes(path, b"new")
    (path.parent / "other").write_bytes(b"other")
    assert permissions(path) == permissions(path.parent / "other")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change owners")
def test_the_owner_is_kept_if_root_writes(path):
    path.write_text("old")
    path.chmod(0o640)
    os.chown(path, 1234, 2345)
    write_text(path, "new")
    found = path.stat()
    assert (found.st_uid, found.st_gid, permissions(path)) == (1234, 2345, 0o640)


@pytest.fixture
def small_disk():
    """Limit the length of files to 64 KiB, so that writing fails as it does on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_table(path):
    """Write a table of 512 KiB."""
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
def test_the_error_for_a_full_disk_names_the_path(tmp_path, small_disk, name, write):
    (tmp_path / name).write_text("old")
    with pytest.raises(OSError, match=re.escape(str(tmp_path / name))) as raised:
        write(tmp_path / name)
    assert (raised.value.errno, raised.value.filename) == (errno.EFBIG, str(tmp_path / name))
    assert (tmp_path / name).read_text() == "old" and os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_errors_that_name_no_file_name_the_target(path, number):
    with pytest.raises(OSError, match=f": '{path}'$") as raised, replacing(path):
        raise OSError(number, "error of a library that does not name the file")
    assert raised.value.errno == number and type(raised.value) is type(OSError(number, ""))


def test_other_errors_are_not_changed(path):
    for error in (FileNotFoundError(errno.ENOENT, "", "another"), BrokenPipeError(errno.EPIPE, ""), OSError("words")):
        with pytest.raises(OSError) as raised, replacing(path):
            raise error
        assert raised.value is error
    assert os.listdir(path.parent) == []


WRITER = """
import sys, time
from anchored.storage.atomic import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    print(temporary, flush=True)
    time.sleep(60)
"""


def test_the_temporary_file_of_a_killed_process_is_removed_by_the_next_write(path):
    path.write_text("old")
    not_temporary = path.parent / ".file.notes.part"
    of_another_target = path.parent / f".file.more.{'0' * 16}.part"
    for other in (not_temporary, of_another_target):
        other.touch()
    with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True) as process:
        temporary = Path(process.stdout.readline().strip())
        write_text(path, "newer")
        assert temporary.read_text() == "half"  # the process that writes it is running
        process.kill()
    assert process.returncode < 0 and path.read_text() == "newer" and temporary.exists()
    write_text(path, "newest")
    assert path.read_text() == "newest"
    assert temporary_files(path.parent) == sorted([not_temporary, of_another_target])
    atomic.remove_abandoned(path.parent)
    assert temporary_files(path.parent) == [not_temporary]


def test_a_temporary_file_that_is_removed_before_it_is_locked_is_created_again(path, monkeypatch):
    flock, removed = atomic.fcntl.flock, []

    def remove_and_lock(descriptor, operation):
        if not removed:
            removed.extend(temporary_files(path.parent))
            atomic.remove_abandoned(path.parent)
        flock(descriptor, operation)

    monkeypatch.setattr(atomic.fcntl, "flock", remove_and_lock)
    write_text(path, "new")
    assert len(removed) == 1 and path.read_text() == "new" and os.listdir(path.parent) == ["file"]


REPEATED_WRITER = """
import sys
from anchored.storage.atomic import write_bytes
for i in range(40):
    write_bytes(sys.argv[1], sys.argv[2].encode() * 50_000)
"""


def test_several_processes_and_threads_can_write_the_same_file(path):
    """At any time, the file has the complete content of one of them."""
    contents = {letter.encode() * 50_000 for letter in "abcd"}
    write_bytes(path, b"a" * 50_000)
    processes = [subprocess.Popen([sys.executable, "-c", REPEATED_WRITER, str(path), letter]) for letter in "ab"]
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
        assert path.read_bytes() in contents
    assert errors == [] and [process.returncode for process in processes] == [0, 0]
    assert path.read_bytes() in contents and os.listdir(path.parent) == ["file"]


def test_only_one_thread_is_in_a_locked_block(tmp_path):
    inside, n_inside = [], []

    def block():
        with atomic.locked(tmp_path):
            inside.append(None)
            time.sleep(1e-3)
            n_inside.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=block) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert n_inside == [1] * 20
