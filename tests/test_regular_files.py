"""Nothing that is no file is opened, and so nothing waits for one."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest

from tbmem.errors import FileFormatError, UsageError
from tbmem.regular_files import open_regular, path_text, read_regular

unix = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")

    assert read_regular(tmp_path / "a") == b"content"
    with open_regular(tmp_path / "a") as file:
        assert (file.read(3), file.seek(0), file.read()) == (b"con", 0, b"content")


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="no file here whose reading fails")
@pytest.mark.parametrize("read", [lambda file: file.read(), lambda file: file.read(9), lambda file: file.readline()])
def test_an_error_while_reading_names_the_file(read: Callable[[BinaryIO], bytes], tmp_path: Path) -> None:
    # given a file that opens and cannot be read, as on a failing disk: address 0 is in no process
    (tmp_path / "a").symlink_to("/proc/self/mem")

    with open_regular(tmp_path / "a") as file, pytest.raises(OSError, match="Input/output error") as raised:
        read(file)

    assert raised.value.filename == str(tmp_path / "a")


def test_a_missing_file_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "a")


@unix
@pytest.mark.parametrize("what", ["a folder", "a named pipe", "a socket", "a device"])
def test_what_is_no_file_is_refused_by_its_name(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.chdir(tmp_path)
    if what == "a folder":
        os.mkdir("a")
    elif what == "a named pipe":
        os.mkfifo("a")
    elif what == "a device":
        os.symlink("/dev/zero", "a")
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind("a")
    # when, then
    with pytest.raises(FileFormatError, match=f"^a: {what}, where a file is expected$"):
        read_regular("a")


@unix
def test_a_file_that_is_replaced_by_a_pipe_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a pipe that was a file when it was looked at
    os.mkfifo(tmp_path / "a")
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_mode=stat.S_IFREG))
    before = os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []
    # when, then it is not waited for, and closed again
    with pytest.raises(FileFormatError, match="a named pipe"):
        open_regular(tmp_path / "a")
    assert len(before) in (0, len(os.listdir("/proc/self/fd")))


@pytest.mark.parametrize("wrong", [[], 7, None, b"x"])
def test_what_is_no_path_is_said_to_be_none(wrong: object) -> None:
    with pytest.raises(UsageError, match="is no path: give the path of a file or a folder"):
        path_text(wrong)


def test_a_path_is_its_text(tmp_path: Path) -> None:
    assert path_text(tmp_path) == path_text(str(tmp_path)) == str(tmp_path)
