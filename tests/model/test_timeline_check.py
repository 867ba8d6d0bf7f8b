"""Values that no recording has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.errors import FileFormatError
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows
from tests.analysis.timelines import recording, training_step


def timeline() -> AllocationTimeline:
    return recording(*training_step(0, 0), {"bytes": 50})


def test_a_recording_passes() -> None:
    timeline().check()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("bytes", -2), ("bytes", 1 << 60), ("alloc_ns", -5), ("free_ns", (1 << 63) - 1), ("step", -2)),
        *(("category", 99), ("phase", -1), ("basis", 7), ("device", -1), ("device", 1)),
        *(("alloc_event", -3), ("alloc_event", 1 << 40), ("free_event", 1 << 40), ("stack", 1 << 20)),
        *(("forward_stack", 1 << 20), ("name", 1 << 20), ("module", -2), ("address", (1 << 63) - 8)),
    ],
)
def test_one_odd_value_of_a_row(column: str, value: int) -> None:
    whole = timeline()
    values: Any = getattr(whole.rows, column).copy()
    values[-1] = value

    with pytest.raises(FileFormatError, match=column):
        replace(whole, rows=whole.rows.replace(**{column: values})).check()


def test_sizes_whose_sum_takes_more_than_64_bits() -> None:
    whole = replace(timeline(), rows=AllocationRows.of(1025, bytes=1 << 53))

    with pytest.raises(FileFormatError, match="bytes of all"):
        whole.check()


@pytest.mark.parametrize(("field", "value"), [("events", 1 << 50), ("events", -1), ("total_bytes", 10**30)])
def test_odd_totals_of_a_device(field: str, value: int) -> None:
    whole = timeline()

    with pytest.raises(FileFormatError, match="device"):
        replace(whole, devices=(replace(whole.devices[0], **{field: value}),)).check()  # type: ignore[arg-type]
