"""Reads traces of torch.profiler into an AllocationTimeline, as a stream and without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.errors import FileFormatError, NoMemoryEventsError
from tbmem.model.columns import I64
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals, OperatorCalls, ReservationRows
from tbmem.model.trace_additions import TraceAdditions
from tbmem.sources.events.annotations import STEPS_ARE_COUNTED, steps
from tbmem.sources.events.compressed_file import open_recording
from tbmem.sources.trace.allocations import CPU_TYPE, DeviceRows, rows_of_device
from tbmem.sources.trace.columns import TraceColumns
from tbmem.sources.trace.context import Running, calls_of
from tbmem.sources.trace.json_stream import JsonEvents
from tbmem.units import format_bytes

_KEPT = ("host_name", "distributedInfo", "displayTimeUnit", "record_shapes", "with_stack", "profile_memory", "trace_id")
_STALE = (
    " They may include memory that was freed while no profiler was on: torch counts memory of the CPU only under a"
    " profiler, so levels of two such traces cannot be compared."
)


def read_trace(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read what ``torch.profiler`` or tbmem wrote: ``*.pt.trace.json`` or ``*.pt.trace.json.gz``.

    Raises:
        NoMemoryEventsError: No allocations were recorded; the message says what to set.
        FileFormatError: The file is damaged, cut off, or something else.
        OSError: The file cannot be read.
    """
    return _read(os.fspath(path))[0]


def read_trace_with_calls(path: str | os.PathLike[str]) -> tuple[AllocationTimeline, OperatorCalls]:
    """The same, with each call of an operator and the memory events of its thread."""
    timeline, columns, clock_zero = _read(os.fspath(path))
    return timeline, calls_of(columns, timeline, clock_zero)


def _read(place: str) -> tuple[AllocationTimeline, TraceColumns, int]:
    """The timeline, and what it was made of: columns, and the Unix time at which the clock reads 0, in nanoseconds."""
    columns = TraceColumns()
    with open_recording(place) as file:
        events = JsonEvents(file, place)
        try:
            for batch in events:
                columns.add(batch)
            clock_zero = int(events.about.get("baseTimeNanoseconds", 0))
        except FileFormatError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"an event near number {events.count} is none of torch.profiler ({error})"
            raise FileFormatError(f"{place}: {what}") from error
    if not len(columns.memory):
        raise NoMemoryEventsError(f"{place}: {_why_nothing(events.count)}")
    return _timeline(columns, events.about, clock_zero, os.path.basename(place)), columns, clock_zero


def _why_nothing(events: int) -> str:
    if not events:
        return "a trace without any event: the profiler was stopped before anything ran in its active steps"
    return (
        f"{events} events, none of them [memory]: record with torch.profiler.profile(profile_memory=True), and"
        " without profile_all_threads=True, which drops them"
    )


def _timeline(columns: TraceColumns, about: Mapping[str, Any], clock_zero: int, file: str) -> AllocationTimeline:
    additions = TraceAdditions.of(about)
    parts = _devices(columns, clock_zero, additions)
    rows = AllocationRows.join([part.rows for part in parts])
    running = Running(columns, np.concatenate([part.entry for part in parts]), additions, clock_zero)
    attributes = running.attributes()
    ranges, range_names = running.ranges()
    step, counted = steps(rows, ranges, range_names)
    timeline = AllocationTimeline(
        source="trace",
        rows=rows.replace(step=step, **attributes),
        devices=tuple(_described(part.totals, about) for part in parts),
        reservations=ReservationRows.join([part.reservations for part in parts]),
        ranges=ranges,
        stacks=running.stacks.builder.table(),
        modules=running.stacks.modules.table(),
        operators=running.operators.table(),
        range_names=range_names,
        about={"file": file, **{key: about[key] for key in _KEPT if key in about}},
    )
    return replace(timeline, notes=_notes_on(timeline, counted))


def _devices(columns: TraceColumns, clock_zero: int, additions: TraceAdditions) -> list[DeviceRows]:
    """Accelerators first, in order of their numbers, then the CPU."""
    memory = columns.memory
    kinds = np.stack([memory["type"] == CPU_TYPE, memory["type"], memory["index"]], axis=1).astype(np.int64)
    names, which = np.unique(kinds, axis=0, return_inverse=True)
    flat: I64 = which.reshape(-1)
    each = [np.flatnonzero(flat == number) for number in range(len(names))]
    return [rows_of_device(memory, which, number, clock_zero, additions.older) for number, which in enumerate(each)]


def _described(device: DeviceTotals, about: Mapping[str, Any]) -> DeviceTotals:
    """With what the trace says of the device itself."""
    known = about.get("deviceProperties") if device.type != CPU_TYPE else None
    for one in known if isinstance(known, list) else []:
        if isinstance(one, dict) and one.get("id") == device.index:
            return replace(device, model=str(one.get("name", "")), total_bytes=one.get("totalGlobalMem"))
    return device


def _notes_on(timeline: AllocationTimeline, steps_are_counted: bool) -> tuple[str, ...]:
    """What the recording cannot know, one sentence each."""
    rows = timeline.rows
    addressed = [bool(rows.address[rows.device == number].any()) for number in range(len(timeline.devices))]
    notes = [
        note
        for device, known in zip(timeline.devices, addressed, strict=True)
        for note in _notes_on_device(device, known)
    ]
    recorded = rows.alloc_event >= 0
    if not any(addressed):
        notes.append("The events have no addresses: frees are matched with allocations by size, the youngest first.")
    bare = int((rows.stack[recorded] < 0).sum())
    if bare:
        notes.append(
            f"{bare} of {int(recorded.sum())} allocations have no Python stack: they were made by a thread without"
            " Python (autograd's), or the profiler ran without with_stack=True."
        )
    frames = timeline.stacks.frames
    if any(frame.file for frame in frames) and not any(frame.line for frame in frames):
        notes.append(
            "The stacks name functions, not the lines that they had come to: torch writes these since 2.14, and tbmem"
            " adds them to its own traces."
        )
    if steps_are_counted:
        notes.append(STEPS_ARE_COUNTED)
    return tuple(notes)


def _notes_on_device(device: DeviceTotals, has_addresses: bool) -> list[str]:
    notes = []
    if not device.base_is_known:
        notes.append("the events have no totals, so the curve begins at 0: what was allocated before is missing.")
    elif device.unlisted_bytes > 0:
        notes.append(
            f"{format_bytes(device.unlisted_bytes)} had been allocated before the recording and were"
            " not freed in it: nothing more is known of them." + (_STALE if device.type == CPU_TYPE else "")
        )
    if device.unmatched_frees and not has_addresses:
        notes.append(
            f"{device.unmatched_frees} frees follow another free. A replay by address calls them"
            " unmatched, as all have the same (none); here they are matched by size."
        )
    elif device.unmatched_frees:
        notes.append(f"{device.unmatched_frees} frees are of memory that is older than the recording.")
    if device.repeated_allocs:
        notes.append(
            f"the frees of {device.repeated_allocs} allocations are missing (made by a thread that was"
            " not recorded): they count as alive."
        )
    if device.unexplained_changes:
        notes.append(
            f"{device.unexplained_changes} times the total changed by more or less than the event says"
            " (events of another thread are missing, or their order is): the total counts, the rest is unknown."
        )
    if device.out_of_order:
        notes.append(f"{device.out_of_order} events stood in the file after later ones, and were sorted.")
    return [f"{device.name}: {note}" for note in notes]
