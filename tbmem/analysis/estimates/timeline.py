"""Converts a SimulatedRun into an AllocationTimeline.

With the allocator's settings it has the addresses and segments of a replay by the caching allocator; without, as for
the CPU, only requested sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.replay import Segment, replay, segments_now
from tbmem.analysis.allocator.settings import AllocatorSettings, describe
from tbmem.analysis.estimates.event_order import RunEvents, order_events
from tbmem.model.category import Basis, Category
from tbmem.model.columns import I64
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.stacks import StackBuilder, StackTable
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import (
    ALIVE,
    AllocationRows,
    BlockRows,
    BlockState,
    DeviceTotals,
    RangeKind,
    RangeRows,
    ReservationKind,
    ReservationRows,
    SegmentKind,
    SegmentRows,
)

EVENT_NS = 1000
"""Simulated runs have no clock: events are a microsecond apart, from Unix time 0 on."""


def timeline_of_run(
    run: SimulatedRun,
    settings: AllocatorSettings | None = None,
    total: int | None = None,
    about: Mapping[str, Any] | None = None,
    source: str = "estimate",
) -> AllocationTimeline:
    """Convert a run.

    Args:
        run: On fake tensors, or counted on real ones.
        settings: Of the caching allocator; ``None`` for a device without one.
        total: Bytes of the device.
        about: Plain JSON values for the timeline's header.
        source: ``'estimate'``, or ``'count'`` for a run counted on real tensors.
    """
    events = order_events(run)
    placement = _Placement(run, events, settings) if settings is not None else None
    shift = np.asarray if placement is None else placement.shift
    length = len(events.row) + (0 if placement is None else len(placement.replayed.changes))
    return AllocationTimeline(
        source=source,
        rows=_rows(run, shift(events.alloc_index), shift(events.free_index), placement),
        devices=(_device(run, placement, length, len(events.row), total),),
        segments=SegmentRows.of() if placement is None else placement.segments(),
        blocks=BlockRows.of() if placement is None else placement.blocks(),
        reservations=ReservationRows.of() if placement is None else placement.reservations(),
        ranges=_steps(run, shift(events.first_event_from(run.about["step_starts"])), length),
        stacks=_stacks(run),
        pools=((0, 0),),
        modules=run.modules,
        operators=run.operators,
        range_names=tuple(f"step {number}" for number in range(len(run.about["step_starts"]))),
        settings={"PYTORCH_ALLOC_CONF": describe(settings)} if settings is not None and describe(settings) else {},
        notes=tuple(f"{note}." for note in run.notes),
        about=dict(about or {}),
    )


class _PlacementRecorder(CachingAllocator):
    """Records the address and size of each block, and which blocks are in use."""

    def __init__(self, settings: AllocatorSettings, device: SimpleDevice) -> None:
        super().__init__(settings, device)
        self.places: list[tuple[int, int]] = []
        self.in_use: dict[int, tuple[int, Block]] = {}

    def malloc(self, requested: int, stream: int = 0, pool_id: int = 0) -> Block:
        """As the simulator does."""
        block = super().malloc(requested, stream, pool_id)
        self.in_use[block.address] = len(self.places), block
        self.places.append((block.address, block.size))
        return block

    def complete_free(self, block: Block) -> None:
        """As the simulator does."""
        del self.in_use[block.address]
        super().complete_free(block)


class _Placement:
    """Placement of a run's allocations by the caching allocator."""

    def __init__(self, run: SimulatedRun, events: RunEvents, settings: AllocatorSettings) -> None:
        self.allocator = _PlacementRecorder(settings, SimpleDevice())
        self.replayed = replay(events.events, allocator=self.allocator)
        # blocks are recorded in the order of allocs; 0 bytes get no block
        self.served = np.flatnonzero(run.size > 0)
        self._held = segments_now(self.allocator, [block for _, block in self.allocator.in_use.values()])

    def shift(self, event: I64) -> I64:
        """Event numbers after inserting each segment change before the alloc that caused it."""
        moved = event + np.searchsorted(self.replayed.change_event, event, side="right")
        return np.where(event < 0, event, moved)

    def columns(self, rows: int) -> dict[str, I64]:
        """Address and rounded size of each row's block."""
        places = np.array(self.allocator.places, dtype=np.int64).reshape(-1, 2)
        columns = {name: np.zeros(rows, dtype=np.int64) for name in ("address", "rounded_bytes")}
        columns["address"][self.served], columns["rounded_bytes"][self.served] = places[:, 0], places[:, 1]
        return columns

    def reservations(self) -> ReservationRows:
        """Changes of segments."""
        changes, event = self.replayed.changes, self.replayed.change_event
        gains = [change.change in (ReservationKind.ALLOC, ReservationKind.MAP) for change in changes]
        number = event + np.arange(len(changes))
        return ReservationRows.of(
            len(changes),
            event=number,
            ns=number * EVENT_NS,
            bytes=[change.size if gain else -change.size for change, gain in zip(changes, gains, strict=True)],
            kind=[int(change.change) for change in changes],
            address=np.array([change.address for change in changes], dtype=np.uint64),
            stream=[change.stream for change in changes],
        )

    def segments(self) -> SegmentRows:
        """Segments at the end."""
        held = self._held
        in_use = [sum(block.size for block in segment.blocks) for segment in held]
        return SegmentRows.of(
            len(held),
            address=np.array([segment.address for segment in held], dtype=np.uint64),
            bytes=[segment.size for segment in held],
            allocated_bytes=in_use,
            active_bytes=in_use,
            requested_bytes=[sum(block.requested for block in segment.blocks) for segment in held],
            kind=[int(SegmentKind.SMALL if segment.small else SegmentKind.LARGE) for segment in held],
            pool=0,
            expandable=[int(segment.expandable) for segment in held],
        )

    def blocks(self) -> BlockRows:
        """Their blocks, used and free."""
        rows = [row for number, segment in enumerate(self._held) for row in self._blocks_of(number, segment)]
        table = np.array(rows, dtype=np.int64).reshape(-1, 6)
        names = ("segment", "address", "bytes", "requested_bytes", "state", "row")
        return BlockRows.of(len(rows), **{name: table[:, place] for place, name in enumerate(names)})

    def _blocks_of(self, number: int, segment: Segment) -> list[tuple[int, int, int, int, int, int]]:
        rows, cursor = [], segment.address
        free, used = int(BlockState.INACTIVE), int(BlockState.ALLOCATED)
        for block in segment.blocks:
            rows.append((number, cursor, block.address - cursor, 0, free, -1))
            row = int(self.served[self.allocator.in_use[block.address][0]])
            rows.append((number, block.address, block.size, block.requested, used, row))
            cursor = block.address + block.size
        rows.append((number, cursor, segment.address + segment.size - cursor, 0, free, -1))
        return [row for row in rows if row[2]]


def _rows(run: SimulatedRun, begin: I64, end: I64, placement: _Placement | None) -> AllocationRows:
    columns = {} if placement is None else placement.columns(len(run))
    known = run.category != Category.UNKNOWN
    return AllocationRows.of(
        len(run),
        bytes=run.size,
        device=0,
        pool=0,
        alloc_event=begin,
        free_event=end,
        alloc_ns=begin * EVENT_NS,
        free_ns=np.where(end < 0, -1, end * EVENT_NS),
        free_requested_event=np.where(end < 0, -1, end),
        step=run.step,
        phase=run.phase,
        category=run.category,
        basis=np.where(known, int(Basis.KNOWN), int(Basis.NONE)),
        module=run.module,
        operator=run.operator,
        stack=run.stack,
        **columns,
    )


def _device(
    run: SimulatedRun, placement: _Placement | None, length: int, events: int, total: int | None
) -> DeviceTotals:
    kind = str(run.about.get("device", "cuda"))
    alive = run.free_event == ALIVE
    sizes: dict[str, Any] = {}
    if placement is not None:
        allocator = placement.allocator
        sizes = {
            "reserved_bytes": allocator.reserved,
            "allocated_bytes": allocator.allocated,
            "active_bytes": allocator.active,
            "base_reserved_bytes": 0,
        }
    return DeviceTotals(
        name="cpu" if kind == "cpu" else f"{kind}:0",
        type=0 if kind == "cpu" else 1,
        index=-1 if kind == "cpu" else 0,
        events=length,
        allocs=len(run),
        frees=events - len(run),
        requested_bytes=int(run.size[alive].sum()),
        total_bytes=total,
        **sizes,
    )


def _steps(run: SimulatedRun, starts: I64, length: int) -> RangeRows:
    ends = np.append(starts[1:], length)
    return RangeRows.of(
        len(starts),
        name=np.arange(len(starts)),
        kind=int(RangeKind.STEP),
        begin_ns=starts * EVENT_NS,
        end_ns=ends * EVENT_NS,
        device=0,
        step=np.arange(len(starts)),
    )


def _stacks(run: SimulatedRun) -> StackTable:
    builder = StackBuilder()
    for stack in run.stacks:
        builder.stack(builder.frame(*frame) for frame in stack)
    return builder.table()
