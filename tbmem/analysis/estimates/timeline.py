"""Converts a SimulatedRun into an AllocationTimeline.

With the allocator's settings it has the addresses and segments of a replay by the caching allocator; without, as for
the CPU, only requested sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tbmem.analysis.allocator.blocks import Block
from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.replay import replay, segments_now
from tbmem.analysis.allocator.settings import AllocatorSettings, describe
from tbmem.analysis.estimates.fit import RunEvents, order_events
from tbmem.model import timeline_tables as tables
from tbmem.model.category import Basis, Category
from tbmem.model.columns import I64
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.stacks import StackBuilder
from tbmem.model.timeline import AllocationTimeline

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
        about: Plain JSON values.
        source: ``'estimate'``, or ``'count'`` for a run counted on real tensors.
    """
    events = order_events(run)
    text = "" if settings is None else describe(settings)
    placement = _Placement(run, events, settings) if settings is not None else None
    shift = np.asarray if placement is None else placement.shift
    stacks = StackBuilder()
    for stack in run.stacks:
        stacks.stack(stacks.frame(*frame) for frame in stack)
    length = len(events.row) + (0 if placement is None else len(placement.allocator.changes))
    return AllocationTimeline(
        source=source,
        rows=_rows(run, shift(events.alloc_index), shift(events.free_index), placement),
        devices=(_device(run, placement, length, len(events.row), total),),
        **({} if placement is None else placement.parts()),
        ranges=_steps(shift(events.first_event_from(run.about["step_starts"])), length),
        stacks=stacks.table(),
        pools=((0, 0),),
        modules=run.modules,
        operators=run.operators,
        range_names=tuple(f"step {number}" for number in range(len(run.about["step_starts"]))),
        settings={"PYTORCH_ALLOC_CONF": text} if text else {},
        notes=tuple(f"{note}." for note in run.notes),
        about=dict(about or {}),
    )


class _PlacementRecorder(CachingAllocator):
    """Records the address and size of each block."""

    def __init__(self, settings: AllocatorSettings) -> None:
        super().__init__(settings)
        self.places: list[tuple[int, int]] = []

    def malloc(self, requested: int, stream: int = 0, pool_id: int = 0) -> Block:
        """As the simulator does."""
        block = super().malloc(requested, stream, pool_id)
        self.places.append((block.address, block.size))
        return block


class _Placement:
    """Placement of a run's allocations by the caching allocator."""

    def __init__(self, run: SimulatedRun, events: RunEvents, settings: AllocatorSettings) -> None:
        self.allocator = _PlacementRecorder(settings)
        replayed = replay(events.events, self.allocator)
        self._change_event = np.array(replayed.change_event, np.int64)
        # blocks are recorded in the order of allocs; 0 bytes get no block
        self._served = np.flatnonzero(run.size > 0)
        self._row = {block.address: row for row, block in replayed.live.items()}
        self._held = segments_now(self.allocator, replayed.live.values())

    def shift(self, event: I64) -> I64:
        """Event numbers after inserting each segment change before the alloc that caused it."""
        moved = event + np.searchsorted(self._change_event, event, side="right")
        return np.where(event < 0, event, moved)

    def columns(self, rows: int) -> dict[str, I64]:
        """Address and rounded size of each row's block."""
        places = np.zeros((rows, 2), np.int64)
        places[self._served] = np.array(self.allocator.places, np.int64).reshape(-1, 2)
        return {"address": places[:, 0], "rounded_bytes": places[:, 1]}

    def parts(self) -> dict[str, Any]:
        """Changes of segments, segments at the end, and their blocks."""
        return {"reservations": self._reservations(), "segments": self._segments(), "blocks": self._blocks()}

    def _reservations(self) -> tables.ReservationRows:
        changes = _columns(self.allocator.changes, "kind", "address", "bytes", "stream")
        changes["bytes"][~np.isin(changes["kind"], (tables.ReservationKind.ALLOC, tables.ReservationKind.MAP))] *= -1
        event = self._change_event + np.arange(len(self._change_event))
        return tables.ReservationRows.of(len(event), event=event, ns=event * EVENT_NS, **changes)

    def _segments(self) -> tables.SegmentRows:
        rows = [
            (
                blocks[0].address,
                sum(block.size for block in blocks),
                sum(block.size for block in blocks if block.busy),
                sum(block.requested for block in blocks if block.busy),
                tables.SegmentKind.SMALL if blocks[0].pool.small else tables.SegmentKind.LARGE,
                blocks[0].range is not None,
            )
            for blocks in self._held
        ]
        columns = _columns(rows, "address", "bytes", "active_bytes", "requested_bytes", "kind", "expandable")
        return tables.SegmentRows.of(len(rows), pool=0, allocated_bytes=columns["active_bytes"], **columns)

    def _blocks(self) -> tables.BlockRows:
        free, used = int(tables.BlockState.INACTIVE), int(tables.BlockState.ALLOCATED)
        rows = [
            (number, block.address, block.size, block.requested, used, self._row[block.address])
            if block.busy
            else (number, block.address, block.size, 0, free, -1)
            for number, blocks in enumerate(self._held)
            for block in blocks
        ]
        columns = _columns(rows, "segment", "address", "bytes", "requested_bytes", "state", "row")
        return tables.BlockRows.of(len(rows), **columns)


def _columns(rows: Sequence[tuple[int, ...]], *names: str) -> dict[str, I64]:
    return dict(zip(names, np.array(rows, np.int64).reshape(-1, len(names)).T, strict=True))


def _rows(run: SimulatedRun, begin: I64, end: I64, placement: _Placement | None) -> tables.AllocationRows:
    known = run.category != Category.UNKNOWN
    return tables.AllocationRows.of(
        len(run),
        bytes=run.size,
        device=0,
        pool=0,
        alloc_event=begin,
        free_event=end,
        alloc_ns=begin * EVENT_NS,
        free_ns=np.where(end < 0, -1, end * EVENT_NS),
        free_requested_event=np.where(end < 0, -1, end),
        basis=np.where(known, int(Basis.KNOWN), int(Basis.NONE)),
        **{name: getattr(run, name) for name in ("step", "phase", "category", "module", "operator", "stack")},
        **({} if placement is None else placement.columns(len(run))),
    )


def _device(
    run: SimulatedRun, placement: _Placement | None, length: int, events: int, total: int | None
) -> tables.DeviceTotals:
    kind = str(run.about.get("device", "cuda"))
    allocator = None if placement is None else placement.allocator
    return tables.DeviceTotals(
        name="cpu" if kind == "cpu" else f"{kind}:0",
        type=0 if kind == "cpu" else 1,
        index=-1 if kind == "cpu" else 0,
        events=length,
        allocs=len(run),
        frees=events - len(run),
        reserved_bytes=None if allocator is None else allocator.reserved,
        allocated_bytes=None if allocator is None else allocator.allocated,
        active_bytes=None if allocator is None else allocator.active,
        requested_bytes=int(run.size[run.free_event == tables.ALIVE].sum()),
        total_bytes=total,
        base_reserved_bytes=None if allocator is None else 0,
    )


def _steps(starts: I64, length: int) -> tables.RangeRows:
    return tables.RangeRows.of(
        len(starts),
        name=np.arange(len(starts)),
        kind=int(tables.RangeKind.STEP),
        begin_ns=starts * EVENT_NS,
        end_ns=np.append(starts[1:], length) * EVENT_NS,
        device=0,
        step=np.arange(len(starts)),
    )
