"""The tables and records that an AllocationTimeline is made of, column by column.

An *event* is one entry of the allocator's log of a device. Events are numbered from 0 in the order in which they
happened, for each device on its own. That number is the timeline's clock: several events share a microsecond, and
some files have no times at all. Times, where there are any, are Unix time in nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I8, I16, I32, I64, U64, Columns, column

BEFORE = -1
"""As the event of an allocation: before the recording began."""
ALIVE = -1
"""As the event of a free: still alive when the recording ended."""
LOST = -2
"""As the event of a free: it came, but the recording does not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRows(Columns):
    """One row per allocation. In any column that is a number into a table, -1 is 'unknown'."""

    bytes: I64 = column(np.int64, 0)
    """What the device's figures count (``DeviceTotals.measure``): the size asked for, or the size after rounding."""
    rounded_bytes: I64 = column(np.int64)
    """Size of the block that served it, after rounding; -1 where the file does not say."""
    device: I16 = column(np.int16, 0)
    """Into ``devices``."""
    stream: I64 = column(np.int64, 0)
    """Stream handle as torch writes it; 0 is the default stream."""
    pool: I16 = column(np.int16)
    """Into ``pools``: the memory pool, where the file says it."""
    address: U64 = column(np.uint64, 0)
    """First byte; 0 where the file has none."""
    alloc_event: I64 = column(np.int64, BEFORE)
    """Event of the device that allocated it, or ``BEFORE``."""
    free_event: I64 = column(np.int64, ALIVE)
    """Event after which its memory could be used again, or ``ALIVE``, or ``LOST``."""
    alloc_ns: I64 = column(np.int64)
    """Unix time; -1 if before the recording, or not known."""
    free_ns: I64 = column(np.int64)
    """Unix time; -1 if there was none, or it is not known."""
    free_requested_event: I64 = column(np.int64)
    """Event at which the program let go of it (earlier than ``free_event`` if another stream used it); -1 for none."""
    step: I32 = column(np.int32)
    """Training step in which it was allocated."""
    phase: I8 = column(np.int8, Phase.OTHER)
    """Phase in which it was allocated."""
    category: I8 = column(np.int8, Category.UNKNOWN)
    """What it is for."""
    basis: I8 = column(np.int8, Basis.NONE)
    """How the category is known."""
    name: I32 = column(np.int32)
    """Into ``names``: what it is called in the model."""
    module: I32 = column(np.int32)
    """Into ``modules``: whose forward asked for it, from the outermost module on: ``'GPT_0.Block_3.Linear_0'``."""
    operator: I32 = column(np.int32)
    """Into ``operators``: the innermost operator that ran, those that only allocate (``aten::empty``) passed over."""
    stack: I32 = column(np.int32)
    """Into ``stacks``."""
    context: I32 = column(np.int32)
    """Into ``contexts``: what else the recording says of it (compile context, the user's own words)."""


class SegmentKind(IntEnum):
    """Which of the allocator's pools a segment belongs to."""

    SMALL = 0
    LARGE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRows(Columns):
    """One row per segment (a stretch of memory that the allocator got from the device) at the end of the recording."""

    device: I16 = column(np.int16, 0)
    address: U64 = column(np.uint64, 0)
    bytes: I64 = column(np.int64, 0)
    allocated_bytes: I64 = column(np.int64, 0)
    """In blocks that the program holds."""
    active_bytes: I64 = column(np.int64, 0)
    """The same and blocks that another stream may still use."""
    requested_bytes: I64 = column(np.int64, 0)
    """What was asked for of the active ones."""
    stream: I64 = column(np.int64, 0)
    kind: I8 = column(np.int8, SegmentKind.LARGE)
    pool: I16 = column(np.int16)
    expandable: I8 = column(np.int8, 0)
    """1 for an expandable segment."""
    stack: I32 = column(np.int32)


class BlockState(IntEnum):
    """What a block is used for at the end of the recording."""

    INACTIVE = 0
    ALLOCATED = 1
    PENDING_FREE = 2
    """Let go of by the program, perhaps still in use by another stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows(Columns):
    """One row per block of a segment, in order of address within it, at the end of the recording."""

    segment: I32 = column(np.int32, 0)
    """Into ``segments``."""
    address: U64 = column(np.uint64, 0)
    bytes: I64 = column(np.int64, 0)
    requested_bytes: I64 = column(np.int64, 0)
    """0 for an inactive block."""
    state: I8 = column(np.int8, BlockState.INACTIVE)
    row: I64 = column(np.int64)
    """Into ``rows``: the allocation in it; -1 for none."""
    stack: I32 = column(np.int32)
    """Of the allocation; in an inactive block that of an earlier one, if the file has it."""


class ReservationKind(IntEnum):
    """How reserved memory changed."""

    ALLOC = 0
    FREE = 1
    MAP = 2
    """Pages of an expandable segment were mapped."""
    UNMAP = 3
    REPORTED = 4
    """The file gives the sum only, not the segment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRows(Columns):
    """One row per change of the reserved memory, in order of events."""

    device: I16 = column(np.int16, 0)
    event: I64 = column(np.int64, 0)
    ns: I64 = column(np.int64)
    bytes: I64 = column(np.int64, 0)
    """How much more; negative for less."""
    kind: I8 = column(np.int8, ReservationKind.REPORTED)
    address: U64 = column(np.uint64, 0)
    stream: I64 = column(np.int64, 0)
    stack: I32 = column(np.int32)


class MarkKind(IntEnum):
    """What else an allocator writes into its log."""

    OOM = 0
    SNAPSHOT = 1
    OTHER = 2
    """Something that a newer torch writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRows(Columns):
    """One row per event that moves no memory: out of memory, a snapshot taken."""

    device: I16 = column(np.int16, 0)
    event: I64 = column(np.int64, 0)
    ns: I64 = column(np.int64)
    kind: I8 = column(np.int8, MarkKind.OTHER)
    bytes: I64 = column(np.int64, 0)
    """OOM: what was asked for in vain."""
    device_free_bytes: I64 = column(np.int64)
    """OOM: what the device had free."""
    stack: I32 = column(np.int32)


class RangeKind(IntEnum):
    """What a stretch of time is."""

    ANNOTATION = 0
    """The user's own, or one of torch's."""
    STEP = 1
    OPTIMIZER = 2
    """``Optimizer.step`` and ``Optimizer.zero_grad``."""
    BACKWARD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRows(Columns):
    """One row per named stretch of time, in order of its beginning."""

    name: I32 = column(np.int32)
    """Into ``range_names``."""
    kind: I8 = column(np.int8, RangeKind.ANNOTATION)
    begin_ns: I64 = column(np.int64)
    end_ns: I64 = column(np.int64)
    """-1 if the recording ended first."""
    device: I16 = column(np.int16)
    """Device it was noted for; -1 for all."""
    step: I32 = column(np.int32)
    """The step it is in, or is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals:
    """What the file says of one device. Bytes are ``None`` where it does not say."""

    name: str
    """torch's name: ``'cuda:0'``, ``'cpu'``; a ROCm device is called ``cuda`` as well."""
    type: int
    """torch's number of the kind: 0 CPU, 1 CUDA, 6 HIP."""
    index: int
    """-1 for the CPU."""
    measure: str = "requested"
    """What ``rows.bytes``, the curve and the peak count: ``'requested'`` or ``'rounded'`` bytes."""
    events: int = 0
    """Events in the device's log, of every kind."""
    allocs: int = 0
    """Of these, allocations."""
    frees: int = 0
    """Of these, completed frees."""
    reserved_bytes: int | None = None
    """At the end: held from the device by the allocator."""
    allocated_bytes: int | None = None
    """At the end: held by the program, after rounding."""
    active_bytes: int | None = None
    """At the end: the same and what other streams may still use."""
    requested_bytes: int | None = None
    """At the end: what was asked for of the active blocks."""
    reported_peak_bytes: int | None = None
    """The highest total that the file itself gives."""
    base_bytes: int = 0
    """Counted bytes before the first event: those at the end, less what the events added."""
    base_is_known: bool = True
    """False if the file has neither totals nor blocks: the curve then begins at 0, and is relative to that."""
    unlisted_bytes: int = 0
    """Of ``base_bytes``, those for which there is no row."""
    base_reserved_bytes: int | None = None
    """Reserved bytes before the first event."""
    unmatched_frees: int = 0
    """Frees whose allocation is older than the recording, by their address (without addresses: see ``notes``)."""
    repeated_allocs: int = 0
    """Allocations at an address that was in use: a free is missing."""
    lost_frees: int = 0
    """Allocations of the recording that are not among the blocks at the end, though no free was recorded."""
    unexplained_changes: int = 0
    """Changes of the file's own total that none of its events explains; each is a row of which nothing is known."""
    ooms: int = 0
    out_of_order: int = 0
    """Events that stand in the file after a later one."""
    total_bytes: int | None = None
    """Memory of the device."""
    model: str = ""
    """What the device is: ``'NVIDIA A100 80GB PCIe'``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRows(Columns):
    """One row per call of an operator."""

    name: I32 = column(np.int32, 0)
    """Into ``OperatorCalls.names``."""
    thread: I32 = column(np.int32, 0)
    begin_ns: I64 = column(np.int64, 0)
    """Unix time."""
    end_ns: I64 = column(np.int64, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows(Columns):
    """One row per allocation or free."""

    device: I16 = column(np.int16, 0)
    """Into the timeline's ``devices``."""
    thread: I32 = column(np.int32, 0)
    ns: I64 = column(np.int64, 0)
    """Unix time."""
    bytes: I64 = column(np.int64, 0)
    """Negative for a free."""
    call: I64 = column(np.int64)
    """Row of the innermost call around it; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCalls:
    """Calls of operators, and changes of memory."""

    calls: CallRows = field(default_factory=CallRows.of)
    changes: ChangeRows = field(default_factory=ChangeRows.of)
    names: tuple[str, ...] = ()
