"""What is asked of one recording (trace, snapshot, timeline): the answers' declarations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from tbmem.present.views.run_schema import Empty


def columns_of(records: Sequence[Any], *names: str) -> Any:
    """A table as columns: of each field the values of all records, as plain lists."""
    return {name: [getattr(one, name) for one in records] for name in names}


class Axis(TypedDict):
    """The x of an answer."""

    axis: str
    """``time`` (milliseconds since the recording began) or ``event``."""
    axes: list[str]
    """Those that the recording has, the one that shows more first."""
    extent: list[float]
    """Whole range of x: two numbers."""
    range: list[float]
    """What was asked for, cut to ``extent``."""


class Head(TypedDict):
    """What every answer on a recording begins with."""

    run: str
    file: str
    name: str
    kind: str
    """``trace``, ``snapshot``, ``estimate``."""
    device: str
    devices: list[str]
    """All devices of the recording, the main one first."""
    measure: str
    """What is counted: ``requested`` or ``rounded`` bytes."""
    notes: list[str]
    """What is not known."""


class Spans(TypedDict):
    """Spans of x, in order."""

    begin: list[float]
    end: list[float]
    label: list[str]
    """``FORWARD``, ..., or ``step 3``."""
    colour: list[str]


class PeakPoint(TypedDict):
    """The highest moment."""

    x: float | None
    bytes: int
    event: int
    step: int
    """-1 if not known."""
    phase: str
    line: str


class Marks(TypedDict):
    """Out of memory, snapshots taken."""

    x: list[float]
    kind: list[str]
    """``oom``, ``snapshot``, ``other``."""
    bytes: list[int]
    """What was asked for in vain."""
    device_free: list[int]
    """-1 if not known."""


class Bands(TypedDict):
    """One entry per allocation that has a band of its own, in the order of the stack, the lowest first."""

    row: list[int]
    """Its number, for ``data/stack``."""
    bytes: list[int]
    layer: list[int]
    """Into ``Timeline.names``: its category's layer, in which it lies upon the bands before it."""
    first: list[int]
    """Number of the first ``Timeline.x`` from which it is there."""
    last: list[int]
    """Number of the ``Timeline.x`` from which it is gone; how many there are if it stays."""
    x0: list[float]
    """When it was allocated, not before ``Axis.range``."""
    x1: list[float]
    """When it was freed, or the end of ``Axis.range``."""
    before: list[bool]
    """It was there before the range."""
    alive: list[bool]
    """It is still there at the end of the recording."""
    label: list[int]
    """Into ``labels``: what to show on hover beside size: name, module or operator."""
    line: list[int]
    """Into ``lines``; -1 for none."""
    module: list[int]
    """Into ``modules``; -1 for none."""


class Allocations(TypedDict):
    """The allocations that cover most of the chart, each a band in the layer of its category.

    What has no band of its own lies in the same layer on top of its bands: there it adds up to ``Timeline.bytes``.
    """

    labels: list[str]
    lines: list[str]
    modules: list[str]
    bands: Bands
    unlisted: list[int]
    """By layer: bytes that the recording lists no allocation for; they are there all the time."""
    shown: int
    count: int
    """Allocations that were alive in the range."""


class Timeline(TypedDict):
    """Memory over time, stacked by category. At each x the categories add up to ``total``."""

    head: Head
    axis: Axis
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
    empty: Empty | None


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
    """Some allocations together."""

    bytes: int
    count: int
    categories: list[str]
    colours: list[str]
    by_category: list[int]
    largest: TensorColumns


class Brushed(TypedDict):
    """What happened in a range of x."""

    head: Head
    axis: Axis
    at_begin: int
    """Bytes at the beginning of the range."""
    at_end: int
    highest: int
    allocated: Sum
    """Made in it, freed in it or not."""
    freed: Sum
    """Freed in it, made in it or before."""
    alive: Sum
    """Made in it and still alive at its end."""
    throughout: Sum
    """Alive at its beginning and at its end."""
    empty: Empty | None


class StackFrame(TypedDict):
    """One line of a call stack."""

    text: str
    own: bool
    """The user's own code, neither torch's nor a package's."""


class OneAllocation(TypedDict):
    """All that is known of one allocation."""

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
    """Parts of the peak, the largest first."""

    name: list[str]
    bytes: list[int]
    count: list[int]
    percent: list[float]
    end_bytes: list[int]
    max_bytes: list[int | None]
    basis: list[str]
    colour: list[str]
    """Empty where a part has none of its own."""


class ModuleTree(TypedDict):
    """Modules inside modules; parents stand before their children, entry 0 is all of the peak."""

    parent: list[int]
    """-1 for the first."""
    name: list[str]
    path: list[str]
    bytes: list[int]
    """With all below."""
    own_bytes: list[int]
    count: list[int]
    percent: list[float]


class StackShares(TypedDict):
    """Parts of the peak by whole stack."""

    line: list[str]
    bytes: list[int]
    count: list[int]
    percent: list[float]
    frames: list[list[str]]


class Peak(TypedDict):
    """What was alive at the peak."""

    head: Head
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
    """As ``analysis.report.Suspect``: what piles up step by step."""
    advice: list[dict[str, Any]]
    """As ``analysis.report.Recommendation``."""
    empty: Empty | None


class Tensors(TypedDict):
    """The table of what was alive at the peak."""

    head: Head
    columns: TensorColumns
    offset: int
    found: int
    """How many there are in all that agree with ``search`` and ``category``."""
    found_bytes: int
    count: int
    """How many there are in all."""
    categories: list[str]
    empty: Empty | None


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
    """Into ``names``; -1 for none."""
    row: list[int]
    """For ``data/stack``; -1 for none."""


class Segments(TypedDict):
    """The allocator's state at the end of the recording."""

    head: Head
    reserved: int | None
    allocated: int | None
    capacity: int | None
    efficiency_percent: float | None
    """The peak, of ``reserved_peak``."""
    reserved_peak: int | None
    grade: str
    fragmentation: dict[str, Any]
    """As ``analysis.report.Fragmentation``."""
    parts: Shares
    """Of reserved: allocated, waiting, fragmented, cached."""
    names: list[str]
    words: list[str]
    colours: list[str]
    segments: SegmentColumns
    blocks: BlockColumns
    segments_count: int
    """How many there are; more than listed where the answer would be too long."""
    blocks_count: int
    empty: Empty | None


class OperatorColumns(TypedDict):
    """One entry per operator; what frees more than it allocates has a negative increase."""

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


class Operators(TypedDict):
    """The table of the profiler's old Memory view."""

    head: Head
    axis: Axis
    columns: OperatorColumns
    empty: Empty | None
