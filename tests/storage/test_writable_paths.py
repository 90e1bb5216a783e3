"""Which paths can be written to: symbolic links and long names, but no devices, pipes, sockets or folders."""

import errno
import os
import re
import socket
import stat
from pathlib import Path

import pytest

from anchored.storage.atomic import NotAFileError, check_writable, replacing, write_text

pytest.importorskip("resource", reason="pipes, devices and permissions are those of POSIX")
AS_ROOT = os.geteuid() == 0


@pytest.mark.parametrize("exists", [True, False], ids=["to a file", "dangling"])
def test_the_file_that_a_link_points_to_is_written(tmp_path, exists):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    link.symlink_to("folder/target")
    if exists:
        target.write_text("old")
    check_writable(link)
    write_text(link, "new")
    assert os.readlink(link) == "folder/target" and target.read_text() == "new"
    assert os.listdir(tmp_path / "folder") == ["target"] and sorted(os.listdir(tmp_path)) == ["folder", "link"]


def assert_refused(path, error, message):
    """Check that `check_writable` and `write_text` raise an error that names the path, and change nothing."""
    exists = os.path.lexists(path)
    before = (path.lstat().st_mode, sorted(os.listdir(path.parent))) if exists else None
    for write in (check_writable, lambda path: write_text(path, "new")):
        with pytest.raises(error, match=message) as raised:
            write(path)
        assert str(path) in str(raised.value)
    if exists:
        assert (path.lstat().st_mode, sorted(os.listdir(path.parent))) == before


def test_pipes_sockets_folders_and_loops_of_links_are_refused(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind("socket")
        for name in ("pipe", "socket"):
            (tmp_path / f"link to {name}").symlink_to(name)
            for path in (tmp_path / name, tmp_path / f"link to {name}"):
                assert_refused(path, NotAFileError, "is a device, a pipe or a socket")
    (tmp_path / "link to a folder").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "link to a folder"):
        assert_refused(path, IsADirectoryError, "is a folder; name a file in it")
    assert_refused(tmp_path / "no" / "file", FileNotFoundError, r"there is no folder .*no; create it first")
    assert_refused(tmp_path / "pipe" / "file", FileNotFoundError, r"there is no folder .*pipe; create it first")
    (tmp_path / "loop").symlink_to("loop")
    assert_refused(tmp_path / "loop", OSError, "symbolic links")


def test_a_path_that_ends_like_a_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, name_in_message in (("new/", "new/"), ("new/.", "new/."), ("", str(tmp_path)), (".", ".")):
        for write in (check_writable, lambda path: write_text(path, "new")):
            with pytest.raises(
                IsADirectoryError, match=f"^{re.escape(name_in_message)} is a folder; name a file in it"
            ):
                write(name)
    assert os.listdir() == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system has no /proc")
def test_streams_that_are_links_to_a_file_are_refused(tmp_path):
    path = tmp_path / "file"
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
def test_files_in_shared_memory_are_accepted():
    check_writable("/dev/shm/model")


@pytest.mark.parametrize("length", [232, 233, 255])
def test_long_names(tmp_path, length):
    """Up to 255 bytes, which is what the system allows. Names above 232 bytes are shortened for temporary files."""
    path, other = (tmp_path / ("é" + letter * (length - 2)) for letter in "no")
    with replacing(path) as temporary:
        temporary.write_text("new")
        abandoned = temporary.with_name(temporary.name[:-21] + "0" * 16 + ".part")
        abandoned.touch()  # as if a process had been killed
    write_text(other, "other")
    assert path.read_text() == "new" and abandoned.exists()  # it is a temporary file of `path`, not of `other`
    write_text(path, "newer")
    assert path.read_text() == "newer" and set(os.listdir(tmp_path)) == {path.name, other.name}


def test_a_name_that_is_too_long_is_refused(tmp_path):
    assert_refused(tmp_path / ("n" * 256), OSError, os.strerror(errno.ENAMETOOLONG))


@pytest.mark.skipif(not AS_ROOT, reason="only root may make devices")
def test_devices_are_refused(tmp_path):
    """The test makes its own null device, so that the machine's is not replaced if the check fails."""
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except OSError:
        pytest.skip("devices cannot be made on this system")
    (tmp_path / "link").symlink_to(device)
    for path in (device, tmp_path / "link"):
        assert_refused(path, NotAFileError, "is a device, a pipe or a socket")
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.skipif(AS_ROOT, reason="root may write everywhere")
def test_a_folder_without_write_permission_is_refused(tmp_path):
    (tmp_path / "folder").mkdir(mode=0o500)
    assert_refused(tmp_path / "folder" / "file", PermissionError, "is not writable; choose another folder")
