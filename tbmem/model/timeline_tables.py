"""Tables of an AllocationTimeline, column by column.

An *event* is one entry in the allocator's log of a device. Events are numbered from 0 per device in order of time. The
number is the timeline's clock: several events share a microsecond, and some files have no times. Times are Unix time
in nanoseconds. A column with the name of a table (``device``, ``stack``, ``row``) indexes it. -1 is 'unknown'.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from tbmem.model.category import Basis, Category, Phase
from tbmem.model.columns import I8, I16, I32, I64, U64, Columns, column

BEFORE = -1  # alloc_event of an allocation made before the recording began
ALIVE = -1  # free_event of an allocation alive when the recording ended
LOST = -2  # free_event of an allocation whose free is missing from the recording


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationRows(Columns):
    """One row per allocation."""

    bytes: I64 = column(np.int64, 0)  # requested or rounded size, as DeviceTotals.measure says
    rounded_bytes: I64 = column(np.int64)
    device: I16 = column(np.int16, 0)
    stream: I64 = column(np.int64, 0)  # stream handle; 0 is the default stream
    pool: I16 = column(np.int16)
    address: U64 = column(np.uint64, 0)  # 0 where unknown
    alloc_event: I64 = column(np.int64, BEFORE)  # event that allocated it, or BEFORE
    free_event: I64 = column(np.int64, ALIVE)  # event after which its memory can be reused, or ALIVE, or LOST
    alloc_ns: I64 = column(np.int64)
    free_ns: I64 = column(np.int64)
    free_requested_event: I64 = column(np.int64)
    """Event at which the program freed it: earlier than ``free_event`` if another stream used it."""
    step: I32 = column(np.int32)
    phase: I8 = column(np.int8, Phase.OTHER)
    category: I8 = column(np.int8, Category.UNKNOWN)
    basis: I8 = column(np.int8, Basis.NONE)
    name: I32 = column(np.int32)
    module: I32 = column(np.int32)
    """Into ``modules``: the module whose forward allocated it, with its parents: ``'GPT_0.Block_3.Linear_0'``."""
    operator: I32 = column(np.int32)
    """Into ``operators``: the innermost operator running, except those that only allocate (``aten::empty``)."""
    stack: I32 = column(np.int32)
    forward_stack: I32 = column(np.int32)
    """Where the forward pass called the operator whose backward allocated it, if torch's anomaly mode was on."""
    context: I32 = column(np.int32)  # into contexts: compile context or user metadata


class SegmentKind(IntEnum):
    """The allocator's pool of small or of large blocks."""

    SMALL = 0
    LARGE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRows(Columns):
    """One row per segment (memory that the allocator reserved from the device) at the end of the recording."""

    device: I16 = column(np.int16, 0)
    address: U64 = column(np.uint64, 0)
    bytes: I64 = column(np.int64, 0)
    allocated_bytes: I64 = column(np.int64, 0)
    active_bytes: I64 = column(np.int64, 0)  # in allocated blocks and those that another stream may still use
    requested_bytes: I64 = column(np.int64, 0)  # requested sizes of the active blocks
    stream: I64 = column(np.int64, 0)
    kind: I8 = column(np.int8, SegmentKind.LARGE)
    pool: I16 = column(np.int16)
    expandable: I8 = column(np.int8, 0)
    stack: I32 = column(np.int32)


class BlockState(IntEnum):
    """State of a block at the end of the recording."""

    INACTIVE = 0
    ALLOCATED = 1
    PENDING_FREE = 2  # freed by the program, perhaps still in use by another stream


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRows(Columns):
    """One row per block of a segment, in order of address within it, at the end of the recording."""

    segment: I32 = column(np.int32, 0)
    address: U64 = column(np.uint64, 0)
    bytes: I64 = column(np.int64, 0)
    requested_bytes: I64 = column(np.int64, 0)  # 0 for an inactive block
    state: I8 = column(np.int8, BlockState.INACTIVE)
    row: I64 = column(np.int64)
    stack: I32 = column(np.int32)  # of its allocation; in an inactive block of an earlier one, if the file has it


class ReservationKind(IntEnum):
    """How reserved memory changed."""

    ALLOC = 0
    FREE = 1
    MAP = 2  # mapped pages of an expandable segment
    UNMAP = 3
    REPORTED = 4  # the file has the sum only, not the segment


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRows(Columns):
    """One row per change of the reserved memory, in order of events."""

    device: I16 = column(np.int16, 0)
    event: I64 = column(np.int64, 0)
    ns: I64 = column(np.int64)
    bytes: I64 = column(np.int64, 0)
    kind: I8 = column(np.int8, ReservationKind.REPORTED)
    address: U64 = column(np.uint64, 0)
    stream: I64 = column(np.int64, 0)
    pool: I16 = column(np.int16)
    stack: I32 = column(np.int32)


class MarkKind(IntEnum):
    """Kind of an event that moves no memory."""

    OOM = 0
    SNAPSHOT = 1
    OTHER = 2  # unknown action of a newer torch


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkRows(Columns):
    """One row per event that moves no memory: out of memory, a snapshot taken."""

    device: I16 = column(np.int16, 0)
    event: I64 = column(np.int64, 0)
    ns: I64 = column(np.int64)
    kind: I8 = column(np.int8, MarkKind.OTHER)
    bytes: I64 = column(np.int64, 0)  # OOM: requested bytes
    device_free_bytes: I64 = column(np.int64)  # OOM: free bytes of the device
    stack: I32 = column(np.int32)


class RangeKind(IntEnum):
    """Kind of a time range."""

    ANNOTATION = 0  # the user's, or another one of torch's
    STEP = 1
    OPTIMIZER = 2
    BACKWARD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeRows(Columns):
    """One row per named time range, in order of its beginning."""

    name: I32 = column(np.int32)
    kind: I8 = column(np.int8, RangeKind.ANNOTATION)
    begin_ns: I64 = column(np.int64)
    end_ns: I64 = column(np.int64)  # -1 if the recording ended first
    device: I16 = column(np.int16)  # -1 for all
    step: I32 = column(np.int32)  # the step that it is, or is in


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTotals:
    """Totals of one device from the file. Bytes are ``None`` where it does not say."""

    name: str  # torch's name: 'cuda:0' (ROCm devices too), 'cpu'
    type: int  # torch's device type: 0 CPU, 1 CUDA, 6 HIP
    index: int
    measure: str = "requested"  # what rows.bytes, the curve and the peak count: 'requested' or 'rounded' bytes
    events: int = 0
    allocs: int = 0
    frees: int = 0
    reserved_bytes: int | None = None  # at the end, as the next three
    allocated_bytes: int | None = None  # after rounding
    active_bytes: int | None = None  # allocated, or perhaps still in use by another stream
    requested_bytes: int | None = None
    reported_peak_bytes: int | None = None  # the highest total in the file
    base_bytes: int = 0  # before the first event: those at the end, less what the events added
    base_is_known: bool = True  # False if the file has neither totals nor blocks: the curve then begins at 0
    unlisted_bytes: int = 0  # bytes of base_bytes without a row
    base_reserved_bytes: int | None = None
    unmatched_frees: int = 0
    """Frees whose allocation is older than the recording, by their address (without addresses: see ``notes``)."""
    repeated_allocs: int = 0  # allocations at an address in use: a free is missing
    lost_frees: int = 0  # recorded allocations that are not among the blocks at the end, without a recorded free
    unexplained_changes: int = 0
    """Changes of the file's own total that none of its events explains; each is a row of unknown origin."""
    ooms: int = 0
    out_of_order: int = 0  # events that follow a later one in the file
    total_bytes: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRows(Columns):
    """One row per call of an operator."""

    name: I32 = column(np.int32, 0)
    thread: I32 = column(np.int32, 0)
    begin_ns: I64 = column(np.int64, 0)
    end_ns: I64 = column(np.int64, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows(Columns):
    """One row per allocation or free."""

    device: I16 = column(np.int16, 0)
    thread: I32 = column(np.int32, 0)
    ns: I64 = column(np.int64, 0)
    bytes: I64 = column(np.int64, 0)
    call: I64 = column(np.int64)  # row of the innermost call around it


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCalls:
    """Calls of operators in a trace, and the changes of memory."""

    calls: CallRows = field(default_factory=CallRows.of)
    changes: ChangeRows = field(default_factory=ChangeRows.of)
    names: tuple[str, ...] = ()
