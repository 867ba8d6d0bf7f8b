"""Times of a trace as columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tbmem.errors import FileFormatError
from tests.sources.trace.traces import (
    WRITERS,
    memory,
    read,
    span,
)


def test_a_time_that_no_clock_shows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"event number 1 .*beyond the year 2255"):
        read(tmp_path, [memory(1e17, 8, 1)])


@WRITERS
def test_times_of_any_manner(tmp_path: Path, write: Any) -> None:
    # given times before the clock's zero, with an exponent, with a fraction, whole, and as text
    times = (-3.5, 1e-5, 2.25, 4, "6.5", 1.5e15)
    events = [memory(time, 8, address, 8 * address) for address, time in enumerate(times, 1)]  # type: ignore[arg-type]
    events[0]["args"]["Bytes"] = "8"

    timeline = read(tmp_path, events, write)

    assert (timeline.rows.alloc_ns - 1_000_000).tolist() == [-3500, 0, 2250, 4000, 6500, 15 * 10**17]
    assert timeline.peak(0).bytes == 48


def test_weights_have_shapes_and_types(tmp_path: Path) -> None:
    # given a linear layer that is called twice, without a bias, one whose shapes are damaged, and another operator
    inputs = {"Input Dims": [[8, 64], [256, 64], []], "Input type": ["float", "c10::Half", ""]}
    calls = [span("cpu_op", "aten::linear", begin, 1, **inputs) for begin in (1, 3)]
    damaged = [span("cpu_op", "aten::linear", 5, 1, **{"Input Dims": dims}) for dims in ("[]", [[1, [2]]], None)]
    other = span("cpu_op", "aten::add", 7, 1, **inputs)

    timeline = read(tmp_path, [*calls, *damaged, other, memory(9, 8, 1)])

    assert timeline.about["weights"] == [["aten::linear", "c10::Half", [256, 64], 2]]
