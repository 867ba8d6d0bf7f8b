"""One message of CPython is left out, and no other."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from tbmem.errors import FileFormatError
from tbmem.sources.events.compressed_file import load_plain_pickle
from tbmem.sources.events.stray_message import no_stray_message


def test_a_bytearray_that_is_larger_than_memory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # given a pickle of a few bytes that asks for 128 TiB
    (tmp_path / "a.pickle").write_bytes(b"\x80\x05N\x96" + struct.pack("<Q", 1 << 47) + b"abc" * 20)
    # when, then the reader refuses it, and nothing else is said
    with pytest.raises(FileFormatError):
        load_plain_pickle(tmp_path / "a.pickle")
    assert capfd.readouterr() == ("", "")


def test_other_messages_are_shown_and_the_hook_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    shown: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, traceback: shown.append(error))
    before, other = sys.excepthook, SystemError("other")
    # when
    with no_stray_message():
        with no_stray_message():
            sys.excepthook(SystemError, SystemError("deallocated bytearray object has exported buffers"), None)
        sys.excepthook(SystemError, other, None)
    # then
    assert shown == [other]
    assert sys.excepthook is before
