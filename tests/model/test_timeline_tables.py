"""What columns hold without being given, and how large their values may be."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import Columns
from tbmem.model.timeline_tables import (
    ALIVE,
    BEFORE,
    LOST,
    AllocationRows,
    BlockRows,
    CallRows,
    ChangeRows,
    MarkKind,
    MarkRows,
    OperatorCalls,
    RangeRows,
    ReservationKind,
    ReservationRows,
    SegmentRows,
)

TABLES = (AllocationRows, SegmentRows, BlockRows, ReservationRows, MarkRows, RangeRows, CallRows, ChangeRows)


def test_a_row_of_which_nothing_is_known_was_there_before_and_still_is() -> None:
    rows = AllocationRows.of(1)

    assert (rows.alloc_event[0], rows.free_event[0]) == (BEFORE, ALIVE)
    assert (rows.phase[0], rows.category[0], rows.basis[0]) == (Phase.OTHER, Category.UNKNOWN, Basis.NONE)
    unknown = ("alloc_ns", "free_ns", "free_requested_event", "step", "name", "module", "operator", "stack", "context")
    assert {int(getattr(rows, name)[0]) for name in unknown} == {-1}
    # and a free that is missing is told from one that did not happen, and both from an event
    assert len({ALIVE, LOST, 0}) == 3
    assert max(ALIVE, LOST) < 0


def test_times_addresses_and_sizes_fit() -> None:
    # given nanoseconds of the year 2100, an address of the upper half, and more bytes than 32 bits count
    rows = AllocationRows.of(1, alloc_ns=4_102_444_800 * 10**9, address=2**64 - 512, bytes=2**40, stream=2**47)

    assert rows.alloc_ns.tolist() == [4_102_444_800 * 10**9]
    assert rows.address.tolist() == [2**64 - 512]
    assert (rows.bytes.tolist(), rows.stream.tolist()) == ([2**40], [2**47])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__)
def test_every_table_has_a_type_and_a_fill_value_that_fits_it_for_each_column(table: type[Columns]) -> None:
    # given / when
    empty, two = table.of(), table.of(2)
    # then
    assert (len(empty), len(two)) == (0, 2)
    for field in fields(table):
        dtype, fill = table.declared()[field.name]
        column = getattr(two, field.name)
        assert column.dtype == dtype
        assert column.tolist() == [fill, fill]
    assert len(table.join([two, empty, two.take(np.array([True, False]))])) == 3


@pytest.mark.parametrize(("module", "fits"), [(-1, True), (2, True), (3, False), (-2, False)])
def test_an_index_is_in_its_table_or_unknown(module: int, fits: bool) -> None:
    # given a table of three modules
    rows = AllocationRows.of(2, module=[0, module])
    # then
    if fits:
        rows.check({"module": 3})
    else:
        with pytest.raises(FileFormatError):
            rows.check({"module": 3})


def test_what_is_not_said_of_reserved_memory_and_marks_is_the_vaguest_kind() -> None:
    assert ReservationRows.of(1).kind.tolist() == [ReservationKind.REPORTED]
    assert MarkRows.of(1).kind.tolist() == [MarkKind.OTHER]
    assert MarkRows.of(1).device_free_bytes.tolist() == [-1]


def test_recordings_without_operators_do_not_share_their_empty_tables() -> None:
    assert OperatorCalls().calls is not OperatorCalls().calls
    assert len(OperatorCalls().changes) == 0
