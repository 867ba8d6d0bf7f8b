"""What a file may have when it is unpacked, and how more is allowed."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tbmem.cli.main import run_command
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.unpacked_size import VARIABLE, max_size
from tbmem.sources.recording import read_recording
from tests.hostile_files import honest_snapshot, honest_trace


def test_more_is_read_when_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a trace that is packed 1:1000
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(honest_trace(10)[:-1] + b" " * 20_000_000 + b"}"))

    with pytest.raises(FileFormatError, match="--max-size"):
        read_recording(path)
    monkeypatch.setenv(VARIABLE, "1 GiB")

    assert read_recording(path).timeline.source == "trace"


def test_less_is_read_when_it_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(honest_snapshot(1000))
    monkeypatch.setenv(VARIABLE, "10 KiB")

    with pytest.raises(FileFormatError, match=r"a\.pickle: more than 10\.00 KiB: not read"):
        read_recording(path)


def test_the_option_of_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(honest_snapshot(1000))
    monkeypatch.setenv(VARIABLE, "")

    with pytest.raises(FileFormatError, match=r"more than 10\.00 KiB: not read"):
        run_command(["analyze", str(path), "--json", "--max-size", "10KiB"])

    assert os.environ[VARIABLE] == "10KiB"


def test_a_limit_that_is_no_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "much")

    with pytest.raises(UsageError, match=VARIABLE):
        max_size()
