"""The thread that keeps files out of the training's way."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tbmem.config.schema import MonitorConfig
from tbmem.model.monitor_log import LogRecord
from tbmem.model.sample_row import RowBuilder, SampleRow
from tbmem.runtime import background_writer
from tbmem.runtime.background_writer import (
    CLOSE_ROWS,
    BackgroundWriter,
    LineSink,
    PeriodicTask,
)
from tbmem.runtime.process.guard import Guard
from tests.conftest import GIB, MakeSample, wait_until


class ListSink:
    """Keeps records, and can be told to fail or to hang."""

    part = "writing"

    def __init__(self, error: OSError | None = None, gate: threading.Event | None = None) -> None:
        self.records: list[LogRecord] = []
        self.closed = False
        self._error = error
        self._gate = gate

    def write(self, records: Sequence[LogRecord]) -> None:
        if self._gate is not None:
            self._gate.wait(30)
        if self._error is not None:
            raise self._error
        self.records += records

    def close(self) -> None:
        self.closed = True


def test_what_was_left_is_written_at_the_end() -> None:
    sink = ListSink()
    background = BackgroundWriter([sink], [], Guard(), interval=60)
    background.start()
    for number in range(5):
        background.put({"type": "x", "number": number})

    background.stop()

    assert [record["number"] for record in sink.records] == list(range(5))  # type: ignore[index]
    assert sink.closed


def test_rounds_come_by_themselves() -> None:
    sink, seen = ListSink(), threading.Event()
    background = BackgroundWriter([sink], [PeriodicTask(seen.set, every=0.01)], Guard(), interval=0.01)
    background.start()
    background.put({"type": "x"})

    assert seen.wait(10)
    deadline = time.monotonic() + 10
    while not sink.records and time.monotonic() < deadline:
        time.sleep(0.005)
    background.stop()
    assert sink.records


def test_what_is_urgent_does_not_wait_for_the_next_round() -> None:
    # given rounds that are a minute apart
    sink = ListSink()
    background = BackgroundWriter([sink], [], Guard(), interval=60)
    background.start()
    # when
    background.put({"type": "x"})
    background.hurry()
    # then
    deadline = time.monotonic() + 10
    while not sink.records and time.monotonic() < deadline:
        time.sleep(0.005)
    assert sink.records
    background.stop()


def test_many_samples_do_not_wait_for_the_next_round(make_sample: MakeSample) -> None:
    # given
    sink = ListSink()
    background = BackgroundWriter([sink], [], Guard(), interval=60)
    background.start()
    # when
    for step in range(0, 300, 10):
        background.put([make_sample(step + number, 45.0) for number in range(10)])
    # then
    deadline = time.monotonic() + 10
    while not sink.records and time.monotonic() < deadline:
        time.sleep(0.005)
    assert sink.records
    background.stop()
    assert len(sink.records) == 300


def test_samples_become_rows_by_device(make_sample: MakeSample) -> None:
    # given
    sink = ListSink()
    background = BackgroundWriter([sink], [], Guard(), interval=60, row_steps=2)
    background.start()
    # when two steps end, and half of a row
    samples = [make_sample(step, 45.0 + step, device=device) for step in (1, 2, 3) for device in ("cuda:0", "cuda:1")]
    background.put(samples)
    background.put(CLOSE_ROWS)
    background.put({"type": "end"})
    background.stop()
    # then rows of the same steps stand together, and the last ones before the end
    rows = [record for record in sink.records[:-1] if isinstance(record, SampleRow)]
    found = [(row.sample.device, row.first_step, row.count, row.allocated_max) for row in rows]
    assert found == [
        ("cuda:0", 1, 2, 47 * GIB),
        ("cuda:1", 1, 2, 47 * GIB),
        ("cuda:0", 3, 1, 48 * GIB),
        ("cuda:1", 3, 1, 48 * GIB),
    ]
    assert len(sink.records) == 5


def test_an_incomplete_row_is_written_where_no_further_step_comes(
    make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a run that stalls after three steps of a row of ten
    monkeypatch.setattr(background_writer, "_STALLED_SECONDS", 0.05)
    sink = ListSink()
    background = BackgroundWriter([sink], [], Guard(), interval=0.02, row_steps=10)
    background.start()
    # when
    background.put([make_sample(step, 1.0) for step in (1, 2, 3)])
    wait_until(lambda: bool(sink.records))
    background.put([make_sample(step, 1.0) for step in range(4, 11)])
    background.stop()
    # then the steps before and those after it have a row each
    assert [(row.first_step, row.count) for row in sink.records if isinstance(row, SampleRow)] == [(1, 3), (4, 7)]


def test_a_chore_comes_early_at_first_and_then_regularly() -> None:
    # given
    task = PeriodicTask(lambda: None, early=(0.02, 0.05, 0.1, 0.5))
    # when it takes a moment, and once so long that two dates go by
    dates = [task.due]
    for took in (0.001, 0.06, 0.001, 0.001, 0.001):
        task.plan(task.due, task.due + took, took)
        dates.append(task.due)
    # then
    assert dates == pytest.approx([0.02, 0.05, 0.5, 1.5, 2.5, 3.5])


def test_a_chore_that_takes_long_comes_less_often() -> None:
    # given
    task = PeriodicTask(lambda: None)
    # when
    task.plan(began=1.0, ended=9.0, took=0.5)
    # then it takes one per cent of the time
    assert task.due == pytest.approx(51.0)


def test_a_full_disk_is_one_warning_for_all_files(caplog: pytest.LogCaptureFixture) -> None:
    # given two files on a disk that is full
    sinks = [ListSink(OSError(28, "No space left on device")) for _ in range(2)]
    background = BackgroundWriter(sinks, [], Guard(), interval=0.005)

    # when records keep coming
    with caplog.at_level(logging.WARNING, "tbmem"):
        background.start()
        for _ in range(20):
            background.put({"type": "x"})
            time.sleep(0.005)
        background.stop()

    # then there is one warning, and the files are closed
    assert len(caplog.records) == 1
    assert "No space left on device" in caplog.text
    assert all(sink.closed for sink in sinks)


def test_a_disk_that_hangs_does_not_hold_up_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a disk that does not answer
    monkeypatch.setattr("tbmem.runtime.background_writer._JOIN_SECONDS", 0.2)
    gate = threading.Event()
    background = BackgroundWriter([ListSink(gate=gate)], [], Guard(), interval=0.001)
    background.start()
    background.put({"type": "x"})
    time.sleep(0.05)

    # when more records come and the run ends
    began = time.monotonic()
    for _ in range(1000):
        background.put({"type": "x"})
    background.stop()

    # then nobody waited long
    assert time.monotonic() - began < 5
    gate.set()
    background._thread.join(10)


def test_stop_before_start_and_twice() -> None:
    background = BackgroundWriter([], [], Guard())

    background.stop()
    background.start()
    background.stop()
    background.stop()


# sinks


def _row(make_sample: MakeSample, step: int, device: str = "cuda:0") -> SampleRow:
    (row,) = RowBuilder().add([make_sample(step, 1.0, device=device)])
    return row


@pytest.mark.parametrize(("ends", "what"), [(True, "the run ends here"), (False, "the program handles the signal")])
def test_the_console_says_that_a_signal_came(caplog: pytest.LogCaptureFixture, ends: bool, what: str) -> None:
    with caplog.at_level("INFO", logger="tbmem"):
        LineSink(10).write([{"type": "signal", "name": "SIGTERM", "time": 0.0, "step": 41, "ends": ends}])

    assert caplog.messages[0].startswith("SIGTERM after step 41: all records are written")
    assert what in caplog.messages[0]


def test_short_steps_have_a_line_in_two_seconds_the_latest_one(
    caplog: pytest.LogCaptureFixture, make_sample: MakeSample
) -> None:
    # given steps of 0.1 s on two devices, five at a time
    sink = LineSink(1, seconds=2.0)
    steps = [[_timed(make_sample, 5 * batch + at) for at in range(1, 6)] for batch in range(10)]
    # when
    with caplog.at_level("INFO", logger="tbmem"):
        for batch in steps:
            sink.write([row for pair in batch for row in pair])
    # then
    shown = [int(message.split()[1]) for message in caplog.messages if message.startswith("step")]
    assert shown == [5, 5, 25, 25, 45, 45]
    # and who has chosen the number of steps is told once
    others = [message for message in caplog.messages if not message.startswith("step")]
    assert others == ["these lines: the latest step, every 2 s at most; monitor.line_seconds=0 shows each"]


def test_by_default_nothing_is_said_of_lines_that_are_held_back(
    caplog: pytest.LogCaptureFixture, make_sample: MakeSample
) -> None:
    sink = LineSink(MonitorConfig().log_every_n_steps, seconds=2.0)

    with caplog.at_level("INFO", logger="tbmem"):
        sink.write([row for step in range(1, 51) for row in _timed(make_sample, step)])

    assert [message.split(" · ")[0] for message in caplog.messages] == ["step 50", "step 50"]


def _timed(make_sample: MakeSample, step: int) -> list[SampleRow]:
    rows = [_row(make_sample, step, device) for device in ("cuda:0", "cuda:1")]
    return [replace(row, sample=row.sample._replace(time=1000.0 + step / 10)) for row in rows]


def test_a_trace_shows_none_of_its_calls(tmp_path: Path) -> None:
    # given a thread that waits when torch's profiler sets its function in all threads, and works while it records
    sink, calls = ListSink(), threading.Semaphore(0)

    def read_slowly() -> None:
        calls.release()

    background = BackgroundWriter([sink], [PeriodicTask(read_slowly, every=0.005)], Guard(), interval=0.005)
    background.start()
    # when
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True) as profiler:
        background.put({"type": "x"})
        for _ in range(20):
            assert calls.acquire(timeout=10)
    # then the trace has the training thread's calls, and the profiler's end has left nothing in either
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = [event["name"] for event in events if event.get("cat") == "python_function"]
    assert any(name.endswith(": put") for name in names)
    assert not any(name.endswith((": read_slowly", ": _write", ": write")) for name in names)
    assert sys.getprofile() is None
    background.stop()
    assert sink.records
