"""What tbmem adds to a trace, there and back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.model.trace_additions import OlderStorages, TimedLines, TraceAdditions


def test_it_is_read_as_it_was_added_and_the_trace_is_json_still(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X"}],\n "traceName": "t" }')
    older = OlderStorages(address=np.array([1 << 46]), bytes=np.array([8]), freed_ns=np.array([-1]))
    lines = TimedLines.of({1_790_857_026_000_000_100: 7, 1_790_857_026_000_000_000: 12})

    with open(path, "r+b") as trace:
        TraceAdditions(calls=lines, files={"a.py": "/b/a.py"}, older=older).append_to(trace)

    about = json.loads(path.read_text())
    assert about["traceEvents"] == [{"ph": "X"}]
    found = TraceAdditions.of(about)
    assert found.calls is not None
    assert found.older is not None
    assert found.calls.line.tolist() == [12, 7]
    assert found.calls.ns.tolist() == [1_790_857_026_000_000_000, 1_790_857_026_000_000_100]
    assert (found.older.address.tolist(), found.older.freed_ns.tolist()) == ([1 << 46], [-1])
    assert found.files == {"a.py": "/b/a.py"}


def test_a_moment_that_was_rounded_is_found() -> None:
    lines = TimedLines.of({100: 1, 200: 2})

    assert lines.at(np.array([99, 101, 150, 199, 202, 203, 0])).tolist() == [1, 1, 0, 2, 2, 0, 0]
    assert TimedLines.of({100: 1}).at(np.array([100, 98, 110])).tolist() == [1, 1, 0]
    assert TimedLines().at(np.array([5])).tolist() == [0]


@pytest.mark.parametrize(
    "value", [None, 3, {}, {"calls": [[1], [1, 2]]}, {"older": [["x"], [1], [1]], "files": 3}, {"operators": [[1]]}]
)
def test_what_is_damaged_or_missing_is_left_out(value: Any) -> None:
    found = TraceAdditions.of({"tbmem": value})

    assert found.calls is None
    assert found.older is None
    assert not len(found.operators.ns)
    assert not found.files


def test_a_file_that_is_no_object_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[1, 2]")

    with open(path, "r+b") as trace:
        TraceAdditions().append_to(trace)

    assert path.read_text() == "[1, 2]"
