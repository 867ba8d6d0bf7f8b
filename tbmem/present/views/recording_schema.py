"""Types of the answers about one recording (trace, snapshot, timeline)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from tbmem.present.views.run_schema import Empty


def columns_of(records: Sequence[Any], *names: str) -> Any:
    """A table as columns: of each field the values of all records, as plain lists."""
    return {name: [getattr(record, name) for record in records] for name in names}


class Axis(TypedDict):
    """The x axis of an answer."""

    axis: str
    """``time`` (milliseconds since the recording began) or ``event``."""
    axes: list[str]
    """Axes of the recording, the default first."""
    extent: list[float]
    """Whole range of x: two numbers."""
    range: list[float]
    """The requested range, clipped to ``extent``."""


class Head(TypedDict):
    """The common head of every answer about a recording."""

    run: str
    file: str
    name: str
    kind: str
    """``trace``, ``snapshot``, ``estimate``."""
    device: str
    devices: list[str]
    """All devices of the recording, the main one first."""
    measure: str
    """Kind of bytes: ``requested`` or ``rounded``."""
    notes: list[str]
    """Limits of the recording."""


class Spans(TypedDict):
    """Spans of x, in order."""

    begin: list[float]
    end: list[float]
    label: list[str]
    """``FORWARD``, ..., or ``step 3``."""
    colour: list[str]


class RecordingAnswer(TypedDict):
    """An answer about one device of a recording."""

    head: Head
    empty: Empty | None


class RangeAnswer(RecordingAnswer):
    """An answer about a range of x."""

    axis: Axis


class PeakPoint(TypedDict):
    """The peak."""

    x: float | None
    bytes: int
    event: int
    step: int
    """-1 if not known."""
    phase: str
    line: str


class Marks(TypedDict):
    """Out-of-memory errors and snapshots."""

    x: list[float]
    kind: list[str]
    """``oom``, ``snapshot``, ``other``."""
    bytes: list[int]
    """Size of the failed request."""
    device_free: list[int]
    """-1 if not known."""


class Bands(TypedDict):
    """One entry per allocation that has a band of its own, in the order of the stack, the lowest first."""

    row: list[int]
    """Row, for ``data/stack``."""
    bytes: list[int]
    layer: list[int]
    """Index into ``Timeline.names``: the layer in which it is stacked on the bands before it."""
    first: list[int]
    """Index of the first ``Timeline.x`` at which it is alive."""
    last: list[int]
    """Index of the first ``Timeline.x`` at which it is freed; the number of points if it stays alive."""
    x0: list[float]
    """When it was allocated, not before ``Axis.range``."""
    x1: list[float]
    """When it was freed, or the end of ``Axis.range``."""
    before: list[bool]
    """Allocated before the range."""
    alive: list[bool]
    """Still alive at the end of the recording."""
    label: list[int]
    """Index into ``labels``: name, module or operator."""
    line: list[int]
    """Index into ``lines``; -1 for none."""
    module: list[int]
    """Index into ``modules``; -1 for none."""


class Allocations(TypedDict):
    """The allocations that cover most of the chart, each a band in the layer of its category.

    The other allocations of a layer are drawn on top of its bands, up to ``Timeline.bytes``.
    """

    labels: list[str]
    lines: list[str]
    modules: list[str]
    bands: Bands
    unlisted: list[int]
    """By layer: bytes without a listed allocation, present all the time."""
    shown: int
    count: int
    """Allocations that were alive in the range."""


class Timeline(RangeAnswer):
    """Memory over time, stacked by category. At each x the categories add up to ``total``."""

    x: list[float]
    names: list[str]
    """Categories, the lowest layer first."""
    words: list[str]
    """The same for people."""
    colours: list[str]
    bytes: list[list[int]]
    """By category, then by x."""
    total: list[int]
    reserved: list[int] | None
    capacity: int | None
    phases: Spans
    steps: Spans
    marks: Marks
    peak: PeakPoint
    points: int
    """Changes in the range; more than ``x`` has where it was thinned (the highest and lowest are always kept)."""
    allocations: Allocations


class TensorColumns(TypedDict):
    """One entry per allocation."""

    row: list[int]
    bytes: list[int]
    category: list[str]
    basis: list[str]
    """How the category is known: ``known``, ``inferred``, ``none``."""
    name: list[str]
    module: list[str]
    operator: list[str]
    phase: list[str]
    step: list[int]
    """-1 if not known."""
    line: list[str]
    x0: list[float | None]
    """``null``: before the recording."""
    x1: list[float | None]
    """``null``: alive at the end."""


class Sum(TypedDict):
    """A sum over allocations."""

    bytes: int
    count: int
    categories: list[str]
    colours: list[str]
    by_category: list[int]
    largest: TensorColumns


class Brushed(RangeAnswer):
    """Allocations and frees in a range of x."""

    at_begin: int
    """Bytes."""
    at_end: int
    highest: int
    allocated: Sum
    """Allocated in the range."""
    freed: Sum
    """Freed in the range."""
    alive: Sum
    """Allocated in the range and alive at its end."""
    throughout: Sum
    """Alive throughout the range."""


class StackFrame(TypedDict):
    """One line of a call stack."""

    text: str
    own: bool
    """Whether it is the user's code, not torch or another package."""


class OneAllocation(TypedDict):
    """Everything known about one allocation."""

    head: Head
    row: int
    bytes: int
    rounded_bytes: int | None
    category: str
    word: str
    colour: str
    basis: str
    name: str
    module: str
    operator: str
    phase: str
    step: int
    stream: int
    address: str
    """Hexadecimal; empty if not known."""
    context: str
    begin_ms: float | None
    """Since the recording began; ``null``: before it, or not known."""
    end_ms: float | None
    """``null``: alive at the end, or not known."""
    alloc_event: int
    free_event: int
    """-1 alive at the end, -2 its free was not recorded."""
    line: str
    frames: list[StackFrame]
    """The innermost first; empty if no stack was recorded."""


class Shares(TypedDict):
    """Shares of the peak, the largest first."""

    name: list[str]
    bytes: list[int]
    count: list[int]
    percent: list[float]
    end_bytes: list[int]
    max_bytes: list[int | None]
    basis: list[str]
    colour: list[str]
    """Empty if the part has no colour."""


class ModuleTree(TypedDict):
    """Modules inside modules; parents stand before their children, entry 0 is all of the peak."""

    parent: list[int]
    """-1 for the first."""
    name: list[str]
    path: list[str]
    bytes: list[int]
    """Including its submodules."""
    own_bytes: list[int]
    count: list[int]
    percent: list[float]


class StackShares(TypedDict):
    """Shares of the peak by call stack."""

    line: list[str]
    bytes: list[int]
    count: list[int]
    percent: list[float]
    frames: list[list[str]]


class Peak(RecordingAnswer):
    """Allocations alive at the peak, broken down."""

    peak: PeakPoint
    capacity: int | None
    reserved_peak: int | None
    by_category: Shares
    by_phase: Shares
    modules: ModuleTree
    merged: Shares
    """Modules with the numbers of repeated layers replaced: ``layers.*.mlp``."""
    by_line: Shares
    by_operator: Shares
    stacks: StackShares
    suspects: list[dict[str, Any]]
    """As ``analysis.recordings.result.Suspect``: what piles up step by step."""
    advice: list[dict[str, Any]]
    """As ``analysis.recordings.result.Recommendation``."""


class Tensors(RecordingAnswer):
    """The table of allocations alive at the peak."""

    columns: TensorColumns
    offset: int
    found: int
    """Number of matches of ``search`` and ``category``."""
    found_bytes: int
    count: int
    """Number of allocations."""
    categories: list[str]


class SegmentColumns(TypedDict):
    """One entry per segment, the largest first."""

    address: list[str]
    bytes: list[int]
    allocated: list[int]
    active: list[int]
    requested: list[int]
    cached: list[int]
    fragmented: list[int]
    stream: list[int]
    kind: list[str]
    """``small`` or ``large``."""
    pool: list[str]
    """``default``, or the pool's numbers."""
    expandable: list[bool]
    start: list[int]
    """Where its blocks begin in ``BlockColumns``; one entry more than there are segments."""


class BlockColumns(TypedDict):
    """One entry per block, by segment and address."""

    offset: list[int]
    """From the segment's beginning."""
    bytes: list[int]
    requested: list[int]
    state: list[int]
    """0 free and fragmented, 1 allocated, 2 waits for a stream, 3 free and cached (as most of its bytes are)."""
    category: list[int]
    """Index into ``names``; -1 for none."""
    row: list[int]
    """For ``data/stack``; -1 for none."""


class Segments(RecordingAnswer):
    """The allocator's state at the end of the recording."""

    reserved: int | None
    allocated: int | None
    capacity: int | None
    efficiency_percent: float | None
    """The peak relative to ``reserved_peak``."""
    reserved_peak: int | None
    grade: str
    fragmentation: dict[str, Any]
    """As ``analysis.recordings.result.Fragmentation``."""
    parts: Shares
    """Of reserved: allocated, waiting, fragmented, cached."""
    names: list[str]
    words: list[str]
    colours: list[str]
    segments: SegmentColumns
    blocks: BlockColumns
    segments_count: int
    """Number of segments; more than listed if the answer would be too long."""
    blocks_count: int


class OperatorColumns(TypedDict):
    """One entry per operator; the increase is negative if it frees more than it allocates."""

    name: list[str]
    calls: list[int | None]
    """``null`` where the recording has no operators' calls (a snapshot)."""
    size_increase: list[int | None]
    """With the operators that it calls, as ``allocations`` and ``allocated``."""
    self_size_increase: list[int]
    allocations: list[int | None]
    self_allocations: list[int]
    allocated: list[int | None]
    self_allocated: list[int]


class Operators(RangeAnswer):
    """The table of the profiler's old Memory view."""

    columns: OperatorColumns
