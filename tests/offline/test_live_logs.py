"""Runs below a path, and their logs as they are written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tbmem.errors import FileFormatError, UsageError
from tbmem.model.monitor_log import MonitorLog, to_line
from tbmem.model.sample_row import SampleRow
from tbmem.sources.runs.catalog import find_runs
from tbmem.sources.runs.log_reader import FollowedLog
from tests.conftest import MakeSample


def _make_log(folder: Path, when: int = 0) -> Path:
    path = folder / "plugins/tbmem/monitor.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"type":"header","rank":0}\n')
    os.utime(path, (when, when))
    return path


def _rows(pieces: list[MonitorLog]) -> list[int]:
    return [row.sample.step for piece in pieces for row in piece.rows]


def test_a_folder_of_runs_oldest_first(tmp_path: Path) -> None:
    # given a run of two ranks, and a newer one with an adapter's folder in between
    for rank in ("rank0", "rank1"):
        _make_log(tmp_path / "old" / rank, when=1000)
    _make_log(tmp_path / "new/version_0/tbmem", when=2000)

    found = find_runs(tmp_path)

    assert [(run.name, len(run.logs)) for run in found] == [("old", 2), ("new/version_0/tbmem", 1)]


def test_a_run_a_rank_and_a_log_by_themselves(tmp_path: Path) -> None:
    log = _make_log(tmp_path / "run/rank3")

    for path in (tmp_path / "run", tmp_path / "run/rank3", log):
        (run,) = find_runs(path)
        assert run.logs == (log,)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_no_run_is_one_clear_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no such file|no run of tbmem"):
        find_runs(tmp_path / name)


def test_a_log_is_followed(tmp_path: Path, make_sample: MakeSample) -> None:
    # given a log that is read while it is written, once in the middle of a line
    log = _make_log(tmp_path)
    lines = [
        to_line(SampleRow(first_step=1, count=1, allocated_min=1, allocated_max=1, sample=make_sample(step, 1.0)))
        for step in (1, 2, 3)
    ]
    followed = FollowedLog(log)
    pieces = list(followed.read())
    assert [len(piece.headers) for piece in pieces if piece.headers] == [1]
    with open(log, "a") as file:
        file.write(lines[0] + "\n" + lines[1][:50])
    assert _rows(list(followed.read())) == [1]

    # when the rest arrives
    with open(log, "a") as file:
        file.write(lines[1][50:] + "\n" + lines[2] + "\n")

    # then nothing is lost and nothing comes twice
    assert _rows(list(followed.read())) == [2, 3]
    assert _rows(list(followed.read())) == []


def test_a_header_begins_a_piece(tmp_path: Path) -> None:
    log = _make_log(tmp_path)
    log.write_text(log.read_text() + '{"type":"end","steps":1}\n' + log.read_text())

    pieces = [piece for piece in FollowedLog(log).read() if piece.headers]

    assert [piece.end for piece in pieces] == [{"type": "end", "steps": 1}, None]


def test_any_other_file_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("hello\nworld\n")

    with pytest.raises(FileFormatError, match="not a monitor log"):
        list(FollowedLog(other).read())
