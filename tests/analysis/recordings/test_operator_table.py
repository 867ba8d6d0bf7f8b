"""The operators' table: alone, and with what they call."""

from __future__ import annotations

import numpy as np

from tbmem.analysis.recordings.operator_table import operator_table, table_of_rows
from tbmem.model.timeline_tables import CallRows, ChangeRows, OperatorCalls
from tests.analysis.timelines import recording

CALLS = OperatorCalls(
    # linear 0..100 calls addmm 20..60; addmm 200..260 on its own; another thread's mul
    calls=CallRows.of(4, name=[0, 1, 1, 2], thread=[0, 0, 0, 1], begin_ns=[0, 20, 200, 0], end_ns=[100, 60, 260, 300]),
    changes=ChangeRows.of(
        6,
        device=[0, 0, 0, 0, 1, 0],
        thread=[0, 0, 0, 1, 0, 0],
        ns=[10, 30, 50, 40, 40, 400],
        bytes=[100, 1000, -300, 7, 9999, 55],
        call=[0, 1, 1, 3, 1, -1],
    ),
    names=("aten::linear", "aten::addmm", "aten::mul"),
)


def test_alone_and_with_callees() -> None:
    table = operator_table(CALLS, 0)

    assert table.name == ("aten::linear", "aten::addmm", "aten::mul")
    assert table.calls is not None
    assert table.calls.tolist() == [1, 2, 1]
    assert table.self_increase.tolist() == [100, 700, 7]
    assert table.self_allocated.tolist() == [100, 1000, 7]
    assert table.self_allocations.tolist() == [1, 1, 1]
    assert table.increase is not None
    assert table.increase.tolist() == [800, 700, 7]
    assert table.allocated is not None
    assert table.allocated.tolist() == [1100, 1000, 7]
    assert table.allocations is not None
    assert table.allocations.tolist() == [2, 1, 1]


def test_of_a_range() -> None:
    table = operator_table(CALLS, 0, 45, 220)

    assert table.name == ("aten::linear", "aten::addmm")
    assert table.calls is not None
    assert table.calls.tolist() == [1, 2]
    assert table.self_increase.tolist() == [0, -300]


def test_rows_without_calls() -> None:
    timeline = recording(
        {"bytes": 10, "begin": 0, "end": 2, "operator": "aten::mm"}, {"bytes": 4, "begin": 1, "operator": "aten::add"}
    )

    table = table_of_rows(timeline, np.array([True, True]), np.array([True, False]))

    assert table.calls is None
    assert table.name == ("aten::mm", "aten::add")
    assert table.self_increase.tolist() == [0, 4]
    assert table.self_allocated.tolist() == [10, 4]
