"""The last header and the last lines of a log that is being written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tbmem.sources.runs import log_edges
from tbmem.sources.runs.log_edges import LogEdges


def _line(**record: object) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def _header(rank: int) -> str:
    return _line(type="header", rank=rank)


ROWS = "".join(_line(type="samples", step=step, time=1.0, device="cpu", first_step=step, count=1) for step in range(99))


@pytest.mark.parametrize("block", [7, 100, 1 << 20])
def test_the_last_header_is_found_wherever_it_lies(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_edges, "_BLOCK", block)
    path = tmp_path / "monitor.jsonl"
    edges = LogEdges(path)
    path.write_text(_header(1) + ROWS)
    assert edges.read().headers[0]["rank"] == 1

    # resumed, and half of a header is written at first
    second = _header(2)
    with path.open("a") as file:
        file.write(second[:9])
        file.flush()
        assert edges.read().headers[0]["rank"] == 1
        file.write(second[9:] + ROWS)
    assert edges.read().headers[0]["rank"] == 2

    with path.open("a") as file:
        file.write(_line(type="end", time=2.0))
    found = edges.read()
    assert found.headers[0]["rank"] == 2
    assert found.end is not None


def test_what_was_searched_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, searched = tmp_path / "monitor.jsonl", []
    path.write_text(_header(1) + ROWS)
    edges = LogEdges(path)
    edges.read()
    find = log_edges._last_header
    monkeypatch.setattr(
        log_edges, "_last_header", lambda file, begin, end: searched.append(end - begin) or find(file, begin, end)
    )

    with path.open("a") as file:
        file.write(ROWS[:50])
    edges.read()

    assert searched == [50 + len('{"type":"header"')]


def test_a_log_that_was_replaced_or_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "monitor.jsonl"
    path.write_text(_header(1) + ROWS)
    edges = LogEdges(path)
    edges.read()

    path.write_text(_header(3))
    assert edges.read().headers[0]["rank"] == 3
    path.write_text(_header(4) + ROWS)
    assert edges.read().headers[0]["rank"] == 4

    path.unlink()
    assert edges.read().headers == []
