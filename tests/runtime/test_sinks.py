"""monitor.jsonl and scalars as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.model.monitor_log import RowBuilder, SampleRow, read_monitor_log
from tbmem.runtime.sinks import LineSink, LogSink, ScalarSink
from tests.conftest import MakeSample


def _row(make_sample: MakeSample, step: int, device: str = "cuda:0") -> SampleRow:
    (row,) = RowBuilder().add([make_sample(step, 1.0, device=device)])
    return row


@pytest.mark.parametrize(("ends", "what"), [(True, "the run ends here"), (False, "the program decides")])
def test_the_console_says_that_a_signal_came(caplog: pytest.LogCaptureFixture, ends: bool, what: str) -> None:
    with caplog.at_level("INFO", logger="tbmem"):
        LineSink(10).write([{"type": "signal", "name": "SIGTERM", "time": 0.0, "step": 41, "ends": ends}])

    assert caplog.messages[0].startswith("SIGTERM after step 41: all that was seen until now is written")
    assert what in caplog.messages[0]


def test_the_log_is_continued(tmp_path: Path, make_sample: MakeSample) -> None:
    path = tmp_path / "monitor.jsonl"
    for step in (1, 2):
        sink = LogSink(path)
        sink.write([{"type": "header", "schema": 1}, _row(make_sample, step)])
        sink.close()

    log = read_monitor_log(path)
    assert [row.sample.step for row in log.rows] == [1, 2]
    assert len(log.headers) == 2


def test_half_a_line_left_by_a_kill_spoils_nothing(tmp_path: Path, make_sample: MakeSample) -> None:
    # given a log that was cut off
    path = tmp_path / "monitor.jsonl"
    path.write_text('{"type":"header","schema":1}\n{"type":"samp')

    # when the run is resumed
    sink = LogSink(path)
    sink.write([_row(make_sample, 7)])
    sink.close()

    # then only the half line is lost
    log = read_monitor_log(path)
    assert [row.sample.step for row in log.rows] == [7]
    assert log.damaged_lines == 1


def test_every_batch_is_with_the_operating_system_at_once(tmp_path: Path, make_sample: MakeSample) -> None:
    sink = LogSink(tmp_path / "monitor.jsonl")
    sink.write([_row(make_sample, 1)])

    assert len(read_monitor_log(tmp_path / "monitor.jsonl").rows) == 1
    sink.close()


def test_a_disk_without_room_raises(make_sample: MakeSample) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    sink = LogSink(full)

    with pytest.raises(OSError, match="No space left"):
        sink.write([_row(make_sample, 1)])
    sink.close()


def test_scalars_name_their_device_once_there_are_several(tmp_path: Path, make_sample: MakeSample) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sink = ScalarSink(tmp_path)
    sink.write([_row(make_sample, 1), _row(make_sample, 1, "cuda:1")])
    sink.close()

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {"memory/cuda:0/allocated", "memory/cuda:1/allocated"} <= set(tags)
