"""Records that the analysis of a recording consists of.

All sizes are bytes. Every breakdown (``by_category``, ``by_phase``, ...) is of what was alive **at the peak**, its
parts add up to ``peak.bytes``, and the largest part comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msgspec import to_builtins

from tbmem.model.columns import I32
from tbmem.model.timeline import AllocationTimeline
from tbmem.units import format_bytes

_LARGEST = 3
"""Categories in the short form of an analysis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One part of the memory at the peak."""

    name: str
    """Category (``'PARAMETER'``, ``'Attention'``), phase, module, operator, or the source line of a stack."""
    bytes: int
    count: int
    """Allocations; what has no row of its own counts 0."""
    percent: float
    end_bytes: int = 0
    """Alive when the recording ends."""
    max_bytes: int | None = None
    """For a category: the most at any moment, which may be another than the peak."""
    basis: str = ""
    """For a category: ``'known'`` from an address book, ``'inferred'``, ``'none'``, or ``'mixed'``."""
    inferred_bytes: int = 0
    """Of a category: at the peak, from blocks whose category is inferred."""
    stack: tuple[str, ...] = ()
    """For a stack: its frames, the innermost first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleShare:
    """A module and those in it, at the peak."""

    name: str
    path: str
    bytes: int
    """With all modules below, as ``count``."""
    own_bytes: int
    count: int
    percent: float
    children: tuple[ModuleShare, ...] = ()

    def walk(self) -> Iterator[ModuleShare]:
        """This module and all below, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMoment:
    """The highest point of counted memory, the first if there are several."""

    bytes: int
    event: int
    """Number of the event in the device's log; -1 for the beginning of the recording."""
    ns: int
    """Unix time; -1 if not known, as ``step``."""
    step: int
    phase: str
    """Name of a ``Phase``."""
    line: str = ""
    """Source line that allocated there; empty if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation among the largest at the peak; what is not known is -1 or empty."""

    row: int
    bytes: int
    rounded_bytes: int
    category: str
    basis: str
    name: str
    module: str
    operator: str
    phase: str
    step: int
    line: str
    """``'train.py:31 forward'``: the innermost line that is not torch's own."""
    stack: tuple[str, ...]
    """Frames, the innermost first, at most some dozens."""
    alloc_event: int
    free_event: int
    alloc_ns: int
    free_ns: int
    alive_at_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragmentation:
    """Where reserved memory that nobody uses lies, at the end of the recording; cached is not fragmented.

    ``reserved = active + free``, ``free = cached + fragmented`` and ``active = requested + rounding_loss``. ``None``
    stands for what the file does not say.
    """

    free_bytes: int | None = None
    """Reserved, less active: what the allocator can hand out again."""
    cached_bytes: int | None = None
    """Of it in whole segments, or whole pages of expandable ones: goes back to the device when it is needed there."""
    cached_in_pages_bytes: int | None = None
    """Of that, whole pages of expandable segments that are partly in use."""
    fragmented_bytes: int | None = None
    """The rest of it: between blocks in use, where it serves only requests that fit."""
    rounding_loss_bytes: int | None = None
    """In used blocks, beyond the request."""
    pending_free_bytes: int | None = None
    """Let go of by the program, perhaps in use by another stream."""
    largest_free_block_bytes: int | None = None
    largest_gap_bytes: int | None = None
    gaps: int | None = None
    """Free blocks between used ones."""
    fragmented_percent: float | None = None
    """Of reserved."""
    failing_request_bytes: int | None = None
    """What the last out-of-memory asked for; ``None`` without one."""
    failing_request_fits_free_sum: bool | None = None
    """Whether all free blocks together would have been enough: then fragmentation is why it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeClass:
    """Allocations of the recording that lived alike."""

    name: str
    """``'whole recording'``, ``'within a step'``, ``'across steps'``, ``'to the end'``, ``'from before'``, ..."""
    count: int
    bytes: int
    """All of their bytes, one after the other."""
    peak_bytes: int
    median_ns: int
    """-1 if not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """Allocations of one stack that accumulate: made in every step, alive at the end, none freed."""

    line: str
    stack: tuple[str, ...]
    bytes: int
    """Alive at the end."""
    count: int
    bytes_per_step: int
    first_step: int
    last_step: int
    generations: int
    """Steps of which something is still alive."""
    category: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What to do, with the number that triggered it."""

    message: str
    setting: str
    """What to change, as it is written: ``'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'``."""
    trigger: str
    """Name of the figure: ``'fragmented_bytes'``."""
    value: float
    limit: float
    """Above which the figure is reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """One step of the recording; nanoseconds are on the host's clock, -1 where the recording has no times."""

    step: int
    """Its number; of steps without one the position, from 1."""
    ns: int
    forward_ns: int
    backward_ns: int
    optimizer_ns: int
    other_ns: int
    """Between the phases, as loading data; the four add up to ``ns``."""
    allocated_bytes: int
    """All allocations of the step, one after the other."""
    freed_bytes: int
    """All frees of the step, also of what is older."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAnalysis:
    """What a recording says of one device."""

    number: int
    name: str
    key: str
    """Its key in the JSON: torch's index, ``'0'``; the name for a device without one, ``'cpu'``."""
    type: int
    """As in ``DeviceTotals``, as ``index``."""
    index: int
    model: str
    measure: str
    """What ``peak`` and the breakdowns count: ``'requested'`` or ``'rounded'`` bytes."""
    events: int
    reserved_bytes: int | None
    """At the end, as the next three; ``None`` where the file does not say."""
    allocated_bytes: int | None
    active_bytes: int | None
    requested_bytes: int | None
    total_bytes: int | None
    peak: PeakMoment
    peak_reserved_bytes: int | None
    base_bytes: int
    unmatched_frees: int
    ooms: int
    fragmentation: Fragmentation
    never_used_bytes: int | None
    """Of the most that was reserved, what was not in use at the peak; ``None`` if no peak was recorded."""
    efficiency_percent: float | None
    """The peak, of the most that was reserved; ``None`` like that."""
    grade: str
    """``'excellent'``, ``'good'``, ``'poor'``, or ``'unknown'``."""
    by_category: tuple[Share, ...]
    by_phase: tuple[Share, ...]
    modules: ModuleShare
    """The root is all of the peak."""
    by_module: tuple[Share, ...]
    """Modules with the numbers of repeated layers merged: ``'layers.*.mlp'``."""
    by_line: tuple[Share, ...]
    by_stack: tuple[Share, ...]
    """Whole stacks, each named by its source line."""
    by_operator: tuple[Share, ...]
    top: tuple[Allocation, ...]
    lifetimes: tuple[LifetimeClass, ...]
    suspects: tuple[Suspect, ...]
    recommendations: tuple[Recommendation, ...]
    steps: tuple[RecordedStep, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The device as plain JSON values."""
        plain = to_builtins(self)
        plain["peak_bytes"], plain["peak_event_index"] = self.peak.bytes, self.peak.event
        plain["by_category_max"] = {share.name: share.max_bytes for share in self.by_category}
        plain["inferred"] = {share.name: share.inferred_bytes for share in self.by_category if share.inferred_bytes}
        plain["categories"] = plain["by_category"]
        for name in ("by_category", "by_phase", "by_module", "by_line", "by_operator"):
            plain[name] = {share.name: share.bytes for share in getattr(self, name)}
        del plain["number"], plain["key"]
        return dict(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What each allocation is for, in words: torch's own where it is known, those of a table where it is inferred."""

    names: tuple[str, ...]
    code: I32
    """Into ``names``, one per row of the timeline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What a recording says."""

    name: str
    path: str
    source: str
    timeline: AllocationTimeline
    labels: Labels
    devices: tuple[DeviceAnalysis, ...]
    notes: tuple[str, ...]
    """What is not known, one sentence each."""

    @property
    def main(self) -> DeviceAnalysis:
        """The device with the highest peak, an accelerator before the CPU."""
        return max(self.devices, key=lambda device: (device.name != "cpu", device.peak.bytes))

    @property
    def shown(self) -> tuple[DeviceAnalysis, ...]:
        """Devices worth showing, the main one first: of a GPU's trace not the few bytes on the CPU."""
        main = self.main
        devices = [device for device in self.devices if device is main or device.peak.bytes > main.peak.bytes / 1000]
        return tuple(sorted(devices, key=lambda device: (device is not main, -device.peak.bytes)))

    def to_dict(self) -> dict[str, Any]:
        """The analysis as plain JSON values, without the rows."""
        devices = {device.key: device.to_dict() for device in self.devices}
        head = {"name": self.name, "path": self.path, "source": self.source}
        return {**head, "devices": devices, "notes": list(self.notes)}

    def __repr__(self) -> str:
        lines = [f"Analysis of {self.name} ({self.source})"]
        for device in self.shown:
            largest = ", ".join(f"{share.name} {format_bytes(share.bytes)}" for share in device.by_category[:_LARGEST])
            where = f"{device.peak.phase} {device.peak.line}".strip()
            lines.append(f"  {device.name}: peak {format_bytes(device.peak.bytes)} ({where}): {largest}")
        return "\n".join(lines)
