"""The live log and the scalars: complete lines, also after a deletion; readers are told of gaps."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tbmem.analysis.runs.run_status import RankState, status_notes
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import LogRecord, read_monitor_log
from tbmem.model.sample_row import RowBuilder, SampleRow
from tbmem.runtime.log_files import LogFiles, LogSink, ScalarSink
from tbmem.runtime.process.run_folder import RunFolder
from tests.conftest import MakeSample

HEADER: LogRecord = {"type": "header", "schema": 1, "started": 1000.0, "pid": 1, "host": "a"}
LEAK = Finding(
    kind=FindingKind.LEAK,
    severity=Severity.WARNING,
    device="cuda:0",
    first_step=1,
    last_step=1,
    message="grows",
)


def _row(make_sample: MakeSample, step: int, device: str = "cuda:0") -> SampleRow:
    (row,) = RowBuilder().add([make_sample(step, 1.0, device=device)])
    return row


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


@pytest.fixture
def sink(folder: RunFolder) -> Iterator[LogSink]:
    sink = LogSink(folder, folder.monitor_log)
    yield sink
    sink.file._close()


def test_the_log_is_continued(folder: RunFolder, make_sample: MakeSample) -> None:
    for step in (1, 2):
        files = LogFiles(folder, scalars=False)
        files.sinks[0].write([HEADER, _row(make_sample, step)])
        files.end(time.monotonic() + 60, with_folder=True)

    log = read_monitor_log(folder.monitor_log)
    assert [row.sample.step for row in log.rows] == [1, 2]
    assert len(log.headers) == 2


def test_a_deleted_log_begins_anew_with_what_was_found(
    folder: RunFolder, sink: LogSink, make_sample: MakeSample
) -> None:
    # given a log with a finding
    sink.write([HEADER, _row(make_sample, 1), LEAK])
    sink.file.write_now()
    # when the folder is deleted
    shutil.rmtree(folder.path)
    sink.write([_row(make_sample, 2)])
    sink.file.write_now()
    # then header and finding are there again, and each reader is told what is not
    log = read_monitor_log(folder.monitor_log)
    assert [header["started"] for header in log.headers] == [1000.0]
    assert log.findings == [LEAK]
    assert [row.sample.step for row in log.rows] == [2]
    assert [gap.is_deleted for gap in log.gaps] == [True]
    state = RankState()
    state.add(log)
    assert "Rank 0: the live log was deleted during the run" in status_notes([state], 1001.0)[-1]


def test_scalars_name_their_device_once_there_are_several(folder: RunFolder, make_sample: MakeSample) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = ScalarSink(folder)
    # when its file is deleted between two points
    for step in (1, 2):
        sink.write([_row(make_sample, step), _row(make_sample, step, "cuda:1")])
        sink.file.write_now()
        if step == 1:
            sink.file.path.unlink()
    sink.file._close()

    # then TensorBoard reads the second
    events = EventAccumulator(str(folder.path))
    events.Reload()
    assert {"memory/cuda:0/allocated", "memory/cuda:1/allocated"} <= set(events.Tags()["scalars"])
    assert [point.step for point in events.Scalars("memory/cuda:0/allocated")] == [2]


def test_the_end_says_what_was_not_written(folder: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    # given a file in place of the folder
    shutil.rmtree(folder.path)
    folder.path.write_text("")
    files = LogFiles(folder)
    # when
    files.sinks[0].write([HEADER])
    files.end(time.monotonic() + 60, with_folder=True)
    # then
    assert caplog.messages[-1].endswith("(run.wait_seconds=30): the live log")
    assert not files.has_log
