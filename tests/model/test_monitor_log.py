"""The live log: rows, lines, and what a kill leaves of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import LogRecord, MonitorLog, WindowRecord, read_monitor_log, to_line
from tbmem.model.sample_row import SampleRow
from tests.conftest import GIB, MakeSample

HEADER: dict[str, Any] = {"type": "header", "schema": 1, "run": "a"}
END: dict[str, Any] = {"type": "end", "steps": 30}
FINDING = Finding(
    kind=FindingKind.SPIKE,
    severity=Severity.WARNING,
    device="cuda:0",
    first_step=7,
    last_step=7,
    message="step 7 reached 78.00 GiB · a line\nbreak",
    evidence={"peak_bytes": 78 * GIB},
)
WINDOW = WindowRecord(number=1, first_step=4, last_step=6, complete=True, files=("w.1.pt.trace.json.gz",))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "monitor.jsonl"


def make_row(make_sample: MakeSample, step: int = 10) -> SampleRow:
    return SampleRow(first_step=step - 9, count=10, allocated_min=1, allocated_max=2, sample=make_sample(step, 45.0))


def write(path: Path, *records: LogRecord, tail: bytes = b"") -> None:
    path.write_bytes(b"".join(to_line(record).encode() + b"\n" for record in records) + tail)


def test_what_was_written_is_read_again(path: Path, make_sample: MakeSample) -> None:
    # given
    rows = [make_row(make_sample, 10), make_row(make_sample, 20)]
    write(path, HEADER, rows[0], FINDING, WINDOW, rows[1], END)
    # when
    log = read_monitor_log(path)
    # then
    assert log.headers == [HEADER]
    assert log.rows == rows
    assert log.findings == [FINDING]
    assert [(each["number"], each["files"]) for each in log.windows] == [(1, ["w.1.pt.trace.json.gz"])]
    assert log.end == END
    assert log.damaged_lines == 0


def test_each_record_is_one_line(make_sample: MakeSample) -> None:
    records: list[LogRecord] = [HEADER, make_row(make_sample), FINDING, WINDOW, END]
    assert [to_line(record).count("\n") for record in records] == [0] * 5


# a kill, and later versions


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_kill_costs_the_last_line_only(kept: int, path: Path, make_sample: MakeSample) -> None:
    # given
    half = to_line(make_row(make_sample, 20)).encode()[:kept]
    write(path, HEADER, make_row(make_sample, 10), tail=half)
    # when
    log = read_monitor_log(path)
    # then
    assert log.rows == [make_row(make_sample, 10)]
    assert log.damaged_lines == 0
    assert log.end is None


def test_a_whole_last_line_without_its_line_break_counts(path: Path, make_sample: MakeSample) -> None:
    write(path, HEADER, tail=to_line(make_row(make_sample)).encode())
    log = read_monitor_log(path)
    assert (len(log.rows), log.damaged_lines) == (1, 0)


def test_a_log_cut_at_any_byte_can_be_read(path: Path, make_sample: MakeSample) -> None:
    # given
    write(path, HEADER, make_row(make_sample), FINDING, WINDOW, END)
    whole = path.read_bytes()
    first = len(to_line(HEADER))
    for length in range(first, len(whole)):
        path.write_bytes(whole[:length])
        # when
        log = read_monitor_log(path)
        # then
        assert log.headers == [HEADER]
        assert log.damaged_lines == 0


def test_a_resumed_run_goes_on_in_the_same_log(path: Path, make_sample: MakeSample) -> None:
    # given: killed in the middle of a line, then resumed
    write(path, HEADER, make_row(make_sample, 10), END, tail=b'{"type":"samp\n')
    with open(path, "ab") as file:
        file.write(to_line({**HEADER, "resumed": True}).encode() + b"\n")
        file.write(to_line(make_row(make_sample, 20)).encode() + b"\n")
    # when
    log = read_monitor_log(path)
    # then: the old end is not this run's end
    assert len(log.headers) == 2
    assert [row.sample.step for row in log.rows] == [10, 20]
    assert log.end is None


def test_a_type_that_is_not_known_is_no_damage(path: Path, make_sample: MakeSample) -> None:
    write(path, HEADER, {"type": "weather", "rain": True}, make_row(make_sample))
    log = read_monitor_log(path)
    assert (len(log.rows), log.damaged_lines) == (1, 0)


def test_keys_of_a_later_version_are_ignored(path: Path, make_sample: MakeSample) -> None:
    # given
    row = {**json.loads(to_line(make_row(make_sample))), "power_watts": 300, "nested": {"a": [1]}}
    write(path, HEADER, row, {"type": "finding", **FINDING.to_dict(), "confidence": 0.9})
    # when
    log = read_monitor_log(path)
    # then
    assert log.rows == [make_row(make_sample)]
    assert log.findings == [FINDING]


def test_a_finding_of_a_kind_not_yet_known_costs_that_line_only(path: Path, make_sample: MakeSample) -> None:
    write(path, HEADER, {"type": "finding", **FINDING.to_dict(), "kind": "imbalance"}, make_row(make_sample))
    log = read_monitor_log(path)
    assert (len(log.findings), len(log.rows), log.damaged_lines) == (0, 1, 1)


@pytest.mark.parametrize(
    "line",
    [b"{}", b"[]", b"null", b"7", b'"header"', b'{"type":"samples"}', b"\xff\xfe", b"{" * 50, b"[" * 100_000],
    ids=["no type", "list", "null", "number", "text", "no counters", "no UTF-8", "half", "deep"],
)
def test_a_damaged_line_in_the_middle_costs_that_line_only(line: bytes, path: Path, make_sample: MakeSample) -> None:
    # given
    row = to_line(make_row(make_sample)).encode()
    path.write_bytes(b"\n".join([to_line(HEADER).encode(), line, row, b""]))
    # when
    log = read_monitor_log(path)
    # then
    assert len(log.rows) == 1
    assert log.damaged_lines == 1


def test_a_damaged_header_does_not_hide_the_rows(path: Path, make_sample: MakeSample) -> None:
    # given
    write(path, make_row(make_sample))
    path.write_bytes(b'{"type":"hea\n' + path.read_bytes())
    # when
    log = read_monitor_log(path)
    # then
    assert (len(log.rows), log.damaged_lines) == (1, 1)


@pytest.mark.parametrize(
    "content",
    [b"hello\nworld\n", b"\x89PNG\r\n\x1a\n\x00\x00", b'{"a": 1}\n', b"[1, 2]", b"step,memory\n1,45\n"],
    ids=["text", "picture", "other JSON", "list", "csv"],
)
def test_a_file_that_is_no_log_is_refused_with_its_name(content: bytes, path: Path) -> None:
    # given
    path.write_bytes(content)
    # when / then
    with pytest.raises(FileFormatError, match="monitor.jsonl"):
        read_monitor_log(path)


def test_a_log_that_has_just_been_opened_is_empty(path: Path) -> None:
    path.touch()
    assert read_monitor_log(path) == MonitorLog()


def test_a_log_that_is_not_there_is_an_os_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_monitor_log(path)


# values that no program of tbmem writes

_NO_COUNT = ["x", None, [], {}, True, -1, 1.5, float("nan"), 1e300, 10**400]
_NO_TEXT = [None, 7, [], {}, True]


def _record(kind: str, make_sample: MakeSample) -> dict[str, Any]:
    header = {"type": "header", "rank": 0, "started": 5.0, "host": "a", "pid": 7, "process": {"pid": 7}}
    records: dict[str, LogRecord] = {"header": header, "end": END, "finding": FINDING, "window": WINDOW}
    records["samples"] = make_row(make_sample)
    records["signal"] = {"type": "signal", "name": "SIGTERM", "ends": True}
    loaded: dict[str, Any] = json.loads(to_line(records[kind]))
    return loaded


@pytest.mark.parametrize(
    ("kind", "key", "odd_values"),
    [
        *(("header", "rank", _NO_COUNT), ("header", "pid", _NO_COUNT), ("header", "host", _NO_TEXT)),
        *(("header", "started", ["x", [], True, -1, 1e300]), ("header", "process", [7, [], {"pid": "x"}])),
        ("header", "config", [7, {"patterns": []}, {"patterns": {"warmup_steps": "x"}}]),
        *(("samples", "step", _NO_COUNT), ("samples", "count", _NO_COUNT), ("samples", "device", _NO_TEXT)),
        *(("samples", "allocated", ["x", [], True, 1.5, 1e300]), ("samples", "profiled", [None, 1, "x"])),
        *(("finding", "last_step", _NO_COUNT), ("finding", "rank", _NO_COUNT), ("finding", "message", _NO_TEXT)),
        *(("finding", "kind", ["x", *_NO_TEXT]), ("finding", "evidence", [None, [], "x"])),
        *(("window", "first_step", _NO_COUNT), ("window", "files", [None, "x", [7]])),
        *(("end", "steps", _NO_COUNT), ("end", "verdicts", [None, "x", [7]]), ("end", "exception", [7, [], True])),
        *(("signal", "ends", [None, 1, "x"]), ("signal", "name", _NO_TEXT)),
    ],
)
def test_a_record_with_an_odd_value_is_counted_and_left_out(
    kind: str, key: str, odd_values: list[Any], path: Path, make_sample: MakeSample
) -> None:
    for odd in odd_values:
        # given a record with one odd value between two others
        write(path, HEADER, {**_record(kind, make_sample), key: odd}, make_row(make_sample))
        # when
        log = read_monitor_log(path)
        # then
        assert log.damaged_lines == 1, odd
        found = (len(log.headers), len(log.rows), log.findings, log.windows, log.end, log.signal)
        assert found == (1, 1, [], [], None, None), odd


@pytest.mark.parametrize("not_read", ["NaN", "Infinity", "1e999", str(10**400), "null"])
def test_a_counter_without_a_number_was_not_read(not_read: str, path: Path, make_sample: MakeSample) -> None:
    line = to_line(make_row(make_sample)).replace('"allocated_max":2', f'"allocated_max":{not_read}')
    path.write_text(line + "\n")

    log = read_monitor_log(path)

    assert (log.damaged_lines, [row.allocated_max for row in log.rows]) == (0, [None])


@pytest.mark.parametrize(
    "evidence",
    [
        {"channel": []},
        {"holder": {}},
        {"bytes_per_step": "x"},
        {"member_steps": ["x"]},
        {"period_steps": -1},
        {"steps_left": 10**30 // 7 * 1.5},
        {"files": [1]},
    ],
)
def test_an_odd_fact_of_a_finding(evidence: dict[str, Any], path: Path) -> None:
    record = {**json.loads(to_line(FINDING)), "evidence": evidence}
    write(path, HEADER, record)

    log = read_monitor_log(path)

    assert (log.findings, log.damaged_lines) == ([], 1)


def test_an_odd_verdict_costs_that_verdict_only(path: Path) -> None:
    write(path, HEADER, {**END, "verdicts": [{"kind": "later"}, FINDING.to_dict()]})

    log = read_monitor_log(path)

    assert log.end is not None
    assert [Finding.from_dict(verdict) for verdict in log.end["verdicts"]] == [FINDING]
    assert log.damaged_lines == 1


def test_blank_lines_are_no_records(path: Path) -> None:
    write(path, HEADER, tail=b"\n  \n\n")

    assert read_monitor_log(path).damaged_lines == 0
