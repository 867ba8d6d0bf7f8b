"""Live logs as columns: the same as line by line, however they are written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import read_monitor_log, to_line
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import ROW_FIELDS, RowBuilder, SampleRow
from tbmem.sources.runs.log_reader import COLUMNS, ColumnLog, sample_rows

HEADER = json.dumps({"type": "header", "rank": 0, "started": 1000.0})


def line(step: int, device: str = "cuda:0", **more: object) -> str:
    values = {"step": step, "time": 1000.5 + step, "device": device, "allocated": 10 * step, "device_total": 1 << 36}
    return to_line(SampleRow(step, 1, 10 * step, 10 * step, MemorySample(**{**values, **more})))  # type: ignore[arg-type]


def read(path: Path, *lines: str) -> ColumnLog:
    path.write_text("".join(f"{one}\n" for one in lines))
    log = ColumnLog(path)
    log.read()
    return log


def assert_it_is_the_same(log: ColumnLog) -> None:
    """As the reader that parses each line."""
    rows = read_monitor_log(log.path).rows
    for one in log.devices():
        expected = [row for row in rows if (row.sample.rank, row.sample.device) == (one.rank, one.device)]
        for found, row in zip(sample_rows(one, np.arange(len(one.columns["step"]))), expected, strict=True):
            values = [dict(zip(ROW_FIELDS, each.values, strict=True)) for each in (found, row)]
            for name in COLUMNS:
                assert values[0][name] == values[1][name], name


def test_it_is_what_the_lines_say(tmp_path: Path) -> None:
    # given devices in turn, counters that come and go, truth values, two ranks
    builder, lines = RowBuilder(3), [HEADER]
    for step in range(1, 60):
        sample = MemorySample(
            step=step,
            time=1000 + step / 7,
            device=("cuda:0", "cuda:1", "cpu")[step % 3],
            rank=step % 2,
            allocated=None if step % 5 == 0 else step << 40,
            profiled=step % 4 == 0,
            updated=(None, True, False)[step % 3],
        )
        lines += [to_line(row) for row in builder.add([sample])]

    log = read(tmp_path / "monitor.jsonl", *lines)

    assert {(one.rank, one.device) for one in log.devices()} >= {(0, "cuda:0"), (1, "cuda:0")}
    assert_it_is_the_same(log)


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "cuda:12", "xpu:1"])
@pytest.mark.parametrize("more", [{}, {"updated": True}, {"profiled": True, "updated": False}])
def test_lines_of_one_make(device: str, more: dict[str, object], tmp_path: Path) -> None:
    log = read(tmp_path / "monitor.jsonl", *(line(step, device, **more) for step in range(1, 30)))

    assert_it_is_the_same(log)
    assert log.rest.damaged_lines == 0


def test_many_lines_of_few_layouts(tmp_path: Path) -> None:
    # given numbers of all lengths, what is no number, negative ones, and lines of a layout that are not what they seem
    lines = [HEADER]
    for step in range(1, 3000):
        device, rank = ("cuda:0", "cuda:1")[step % 2], int(step > 2000)
        level = None if step % 50 == 0 else (step * 7919) % (10 ** (1 + step % 11))
        more = {"time": 1.7e9 + step / 1000, "allocated": level, "ooms": -1, "profiled": step % 500 == 0, "rank": rank}
        lines.append(line(step, device, **more))
    good = len(lines)
    lines += [
        lines[500].replace(":1700000000.", wrong, 1) for wrong in (":17000000:0.", ":17000000a0.", ":1700000000;")
    ]

    log = read(tmp_path / "monitor.jsonl", *lines)

    assert log.rows == good - 1
    assert log.rest.damaged_lines == 3
    assert_it_is_the_same(log)


def test_many_lines_of_a_run_that_was_resumed(tmp_path: Path) -> None:
    old = [line(step) for step in range(100, 900)]
    new = [line(step, allocated=7) for step in range(500, 600)]

    log = read(tmp_path / "monitor.jsonl", HEADER, *old, "", HEADER, *new)

    (one,) = log.devices()
    assert one.columns["step"].tolist() == list(range(100, 600))
    assert one.columns["allocated"].tolist() == [10 * step for step in range(100, 500)] + [7] * 100


def test_it_is_read_on(tmp_path: Path) -> None:
    # given a log of which half a line is written
    path = tmp_path / "monitor.jsonl"
    whole = line(2)
    path.write_text(f"{HEADER}\n{line(1)}\n{whole[:20]}")
    log = ColumnLog(path)
    log.read()
    assert log.devices()[0].columns["step"].tolist() == [1]

    # when the rest comes, with a finding and the end
    finding = Finding(
        kind=FindingKind.LEAK, severity=Severity.CRITICAL, device="cpu", first_step=1, last_step=2, message="m"
    )
    with path.open("a") as file:
        file.write(whole[20:] + "\n" + to_line(finding) + "\n" + json.dumps({"type": "end", "time": 1.0}) + "\n")
    log.read()

    assert log.devices()[0].columns["step"].tolist() == [1, 2]
    assert [one.kind for one in log.rest.findings] == [FindingKind.LEAK]
    assert log.rest.end is not None
    assert log.rest.damaged_lines == 0


def test_a_long_log_is_read_in_parts(tmp_path: Path) -> None:
    # given a log of more than one block
    path = tmp_path / "monitor.jsonl"
    path.write_text("\n".join([HEADER, *(line(step) for step in range(12_000))]) + "\n")
    whole = read_monitor_log(path).rows

    # when there is no time left, one block is read each time
    log, shares, rows = ColumnLog(path), [1.0], [0]
    while shares[-1]:
        log.read(until=0.0)
        shares.append(log.unread)
        rows.append(log.rows)

    assert len(shares) > 2
    assert shares == sorted(set(shares), reverse=True)
    assert rows == sorted(set(rows))
    assert_it_is_the_same(log)
    assert log.rows == len(whole) == 12_000


def test_a_resumed_run_goes_on_where_it_was_resumed(tmp_path: Path) -> None:
    old = [line(step) for step in range(1, 10)]
    new = [line(step, allocated=7) for step in range(6, 8)]

    log = read(tmp_path / "monitor.jsonl", HEADER, *old, HEADER, *new)

    (one,) = log.devices()
    assert one.columns["step"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert one.columns["allocated"].tolist() == [10, 20, 30, 40, 50, 7, 7]


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    log = read(tmp_path / "monitor.jsonl", HEADER, *(line(step) for step in range(1, 10)))

    log.path.write_text(f"{HEADER}\n{line(3)}\n")
    log.read()
    assert log.devices()[0].columns["step"].tolist() == [3]

    # by a longer one
    log.path.write_text("".join(f"{one}\n" for one in (HEADER.replace("1000.0", "2000.0"), *map(line, range(7, 20)))))
    log.read()
    assert log.devices()[0].columns["step"].tolist() == list(range(7, 20))


def test_nan_and_odd_lines_are_told(tmp_path: Path) -> None:
    odd = '{"type":"samples","step":3,"time":NaN,"device":"cuda:0","allocated":1,"first_step":3,"count":1}'
    log = read(tmp_path / "monitor.jsonl", HEADER, line(1), odd, "{half", line(4))

    (one,) = log.devices()
    # a row without a time has no place
    assert one.columns["step"].tolist() == [1, 4]
    assert log.rest.damaged_lines == 2


def test_what_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="not a monitor log"):
        read(tmp_path / "monitor.jsonl", "hello", "world")
