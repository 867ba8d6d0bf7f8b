"""A file that grows through full and hanging disks, and through its deletion."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tbmem.model.monitor_log import LogGap
from tbmem.runtime.process.growing_file import GrowingFile, Record


class Disk:
    """Stands in for ``os.write``: takes some bytes, then refuses until it is mended."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._write = os.write
        self.room: int | None = None
        self.error = errno.ENOSPC
        monkeypatch.setattr("tbmem.runtime.process.growing_file.os.write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if self.room is None:
            return self._write(file, data)
        if self.room <= 0:
            raise OSError(self.error, os.strerror(self.error))
        written = self._write(file, bytes(data)[: self.room])
        self.room -= written
        return written


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def _line(**values: object) -> bytes:
    return f"{json.dumps(values)}\n".encode()


def _file(path: Path, **options: object) -> GrowingFile:
    moments: Iterator[float] = iter(range(1000, 2000))
    return GrowingFile(
        "the log",
        path,
        gap=lambda gap: _line(gap=gap.reason, lost=gap.lost),
        begin=lambda gap: () if gap is None else [_line(gap=gap.reason)],
        clock=lambda: next(moments),
        prepare=lambda: path.parent.mkdir(parents=True, exist_ok=True),
        **options,  # type: ignore[arg-type]
    )


def _rows(file: GrowingFile, *numbers: int) -> None:
    file.put(Record(_line(row=number), must=False) for number in numbers)
    file.write_now()


def _read(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS])
@pytest.mark.parametrize("room", range(0, 26, 5))
def test_after_any_error_it_goes_on_and_no_line_is_damaged(tmp_path: Path, disk: Disk, error: int, room: int) -> None:
    # given a disk that has room for a part of what comes
    file = _file(tmp_path / "log")
    _rows(file, 1)
    disk.room, disk.error = room, error
    _rows(file, 2, 3)
    _rows(file, 4)
    # when it takes everything again
    disk.room = None
    _rows(file, 5)
    # then every row is there once, in order, with one gap
    records = _read(tmp_path / "log")
    assert [record["row"] for record in records if "row" in record] == [1, 2, 3, 4, 5]
    assert [record for record in records if "gap" in record] == [{"gap": os.strerror(error), "lost": 0}]
    assert [gap.lost for gap in file.gaps] == [0]
    file._end()


def test_what_waits_is_bounded_and_what_is_lost_is_told(tmp_path: Path, disk: Disk) -> None:
    # given room for some hundred bytes in memory, and a disk that is full
    file = _file(tmp_path / "log", most=200)
    disk.room = 0
    file.put([Record(_line(finding=1))])
    for number in range(100):
        _rows(file, number)
    # when it takes everything again
    disk.room = None
    _rows(file, 100)
    # then the newest rows are there, what is no sample as well, and the number of the others
    records = _read(tmp_path / "log")
    rows = [record["row"] for record in records if "row" in record]
    assert {"finding": 1} in records
    assert rows == list(range(101 - len(rows), 101))
    assert 5 < len(rows) < 20
    assert file.gaps[0].lost == 101 - len(rows)
    assert file.problems == [f"the log {file.gaps[0].sentence}"]
    file._end()


@pytest.mark.parametrize("delete", [lambda path: shutil.rmtree(path.parent), lambda path: path.unlink()])
def test_after_a_deletion_it_is_made_again(
    tmp_path: Path, delete: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    # given
    path = tmp_path / "run" / "log"
    file = _file(path)
    _rows(file, 1)
    # when it is deleted, twice
    for number in (2, 4):
        delete(path)
        _rows(file, number)
        _rows(file, number + 1)
    # then what comes later is there, and that something is missing; the console is told once
    assert _read(path) == [{"gap": "deleted"}, {"row": 4}, {"row": 5}]
    assert [gap.is_deleted for gap in file.gaps] == [True, True]
    assert len(caplog.messages) == 1
    file._end()
    assert file.is_there


def test_a_log_of_another_run_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given another run that has taken the place
    path = tmp_path / "log"
    file = _file(path, is_ours=lambda path: False)
    _rows(file, 1)
    path.unlink()
    path.write_text('{"row": 77777777777}\n')
    # when
    _rows(file, 2)
    _rows(file, 3)
    # then
    assert _read(path) == [{"row": 77777777777}]
    assert "another run has begun" in caplog.text
    file._end()
    assert not file.is_there


def test_half_a_line_left_by_a_kill_spoils_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text('{"row": 1}\n{"ro')
    file = _file(path)

    _rows(file, 2)

    assert path.read_text() == '{"row": 1}\n{"ro\n{"row": 2}\n'
    file._end()


def test_a_disk_that_hangs_holds_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a disk that does not answer
    gate, reached, write = threading.Event(), threading.Event(), os.write

    def hang(file: int, data: bytes) -> int:
        reached.set()
        gate.wait(60)
        return write(file, data)

    monkeypatch.setattr("tbmem.runtime.process.growing_file.os.write", hang)
    file = _file(tmp_path / "log", most=1000)
    file.start()
    # when records come and the run ends
    for number in range(1000):
        file.put([Record(_line(row=number), must=False)])
    assert reached.wait(60)
    for number in range(1000, 2000):
        file.put([Record(_line(row=number), must=False)])
    file.end()
    # then the end waits no longer than it may, and little is in memory
    assert not file.wait(time.monotonic())
    assert sum(len(data) for data in file.waiting()) <= 1000
    # and when it answers, all that waits is written
    gate.set()
    assert file.wait(time.monotonic() + 60)
    assert _read(tmp_path / "log")[-1] == {"row": 1999}


def test_a_gap_says_what_happened() -> None:
    gap = LogGap(since=10.0, until=130.0, reason="No space left on device", lost=3)

    assert "No space left on device" in gap.sentence
    assert "3 records of this time are lost" in gap.sentence
    assert LogGap.from_dict(gap.to_dict()) == gap
