"""Small files with much in them: each is refused in one line, in little memory."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.monitor_log import LONGEST_LINE, read_monitor_log
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.log_reader import ColumnLog
from tests.conftest import PROJECT
from tests.hostile_files import HOSTILE, honest_snapshot, write_hostile

_MEMORY = 640 << 20
"""Bytes that a process may have in all, Python and numpy included."""
_READ = """
import sys
from pathlib import Path
from tbmem.errors import FileFormatError
from tbmem.model.monitor_log import read_monitor_log
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.log_reader import ColumnLog
for name in sys.argv[1:]:
    path = Path(name)
    try:
        if path.suffix == ".jsonl":
            ColumnLog(path).read()
            read_monitor_log(path)
        else:
            read_recording(path)
        print("read")
    except FileFormatError as error:
        print(str(error))
"""


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (120, 120))


def test_each_is_one_line_in_little_memory(tmp_path: Path) -> None:
    # given
    paths = []
    for number, name in enumerate(HOSTILE):
        folder = tmp_path / str(number)
        folder.mkdir()
        paths.append(write_hostile(name, folder))

    # when
    command = [sys.executable, "-c", _READ, *map(str, paths)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, preexec_fn=_limit, check=False)

    # then
    assert done.returncode == 0, done.stderr
    lines = dict(zip(HOSTILE, done.stdout.splitlines(), strict=True))
    for path, (name, (_, _, message)) in zip(paths, HOSTILE.items(), strict=True):
        assert lines[name].startswith(f"{path}: "), name
        assert lines[name].count(str(path)) == 1, name
        assert re.search(message, lines[name]), (name, lines[name])


def test_a_process_that_may_be_training_is_not_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    limits: list[int] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limit: limits.append(kind))
    path = tmp_path / "a.pickle"
    path.write_bytes(honest_snapshot(3_000))
    # when
    assert "torch" in sys.modules
    read_recording(path)
    # then
    assert limits == []


def test_the_limit_is_lifted_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    path = write_hostile("index of the memo, after a megabyte", tmp_path)

    for _ in range(2):
        with pytest.raises(FileFormatError):
            read_recording(path)

        assert resource.getrlimit(resource.RLIMIT_DATA) == before


@pytest.mark.parametrize("events", [100, 3_000, 60_000])
def test_honest_snapshots_of_any_size_are_read(tmp_path: Path, events: int) -> None:
    path = tmp_path / "a.pickle"
    path.write_bytes(honest_snapshot(events))

    assert read_recording(path).timeline.devices[0].allocs == events


def test_a_line_that_is_too_long_is_a_damaged_one(tmp_path: Path) -> None:
    # given
    sample = b'{"type":"samples","step":%d,"time":1.0,"first_step":1,"count":1,"device":"cpu","rank":0}\n'
    path = tmp_path / "monitor.jsonl"
    path.write_bytes(sample % 1 + b"x" * (2 * LONGEST_LINE) + b"\n" + sample % 2)

    # when
    log, records = ColumnLog(path), read_monitor_log(path)
    log.read()

    # then
    assert log.devices()[0].columns["step"].tolist() == [1, 2]
    assert [row.sample.step for row in records.rows] == [1, 2]
    assert records.damaged_lines == log.rest.damaged_lines - 1 == 1
