"""Reads traces of torch.profiler into an AllocationTimeline, as a stream and without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.errors import FileFormatError, NoMemoryEventsError
from tbmem.model.progress import progress
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals, OperatorCalls, ReservationRows
from tbmem.model.trace_additions import TraceAdditions
from tbmem.sources.events.annotations import STEPS_ARE_COUNTED, steps
from tbmem.sources.events.compressed_file import open_recording
from tbmem.sources.trace.allocations import CPU_TYPE, DeviceRows, rows_of_device
from tbmem.sources.trace.columns import TraceColumns
from tbmem.sources.trace.context import AllocationContext, calls_of
from tbmem.sources.trace.json_stream import JsonEvents
from tbmem.units import format_bytes

_ABOUT_KEYS = (
    *("host_name", "distributedInfo", "displayTimeUnit", "record_shapes", "with_stack", "profile_memory", "trace_id"),
)
_NO_EVENT = "a trace without any event: the profiler was stopped before anything ran in its active steps"
_NO_MEMORY = (
    "record with torch.profiler.profile(profile_memory=True), and without profile_all_threads=True, which drops them"
)
_STALE = (
    " They may include memory that was freed while no profiler was on: torch counts memory of the CPU only under a"
    " profiler, so levels of two such traces cannot be compared."
)


def read_trace(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read a trace of ``torch.profiler`` or tbmem, ``*.pt.trace.json`` or ``*.pt.trace.json.gz``.

    Raises:
        NoMemoryEventsError: No allocations were recorded.
        FileFormatError: The file is damaged, cut off, or something else.
    """
    return _read(os.fspath(path))[0]


def read_trace_with_calls(path: str | os.PathLike[str]) -> tuple[AllocationTimeline, OperatorCalls]:
    """Read a trace with its calls of operators."""
    timeline, columns, clock_zero = _read(os.fspath(path))
    return timeline, calls_of(columns, timeline, clock_zero)


def _read(path: str) -> tuple[AllocationTimeline, TraceColumns, int]:
    """The timeline, the trace's columns, and the Unix time of the trace's clock at 0, in nanoseconds."""
    columns = TraceColumns()
    with open_recording(path) as file:
        events = JsonEvents(file, path)
        try:
            for batch in events:
                columns.add(batch)
            clock_zero = int(events.about.get("baseTimeNanoseconds", 0))
        except FileFormatError:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            what = f"event number {events.count} is none of torch.profiler ({error})"
            raise FileFormatError(f"{path}: {what}") from error
    progress("pairing allocations and frees")
    if not len(columns.memory):
        reason = f"{events.count} events, none of them [memory]: {_NO_MEMORY}" if events.count else _NO_EVENT
        raise NoMemoryEventsError(f"{path}: {reason}")
    return _timeline(columns, events.about, clock_zero, os.path.basename(path)), columns, clock_zero


def _timeline(columns: TraceColumns, about: Mapping[str, Any], clock_zero: int, file: str) -> AllocationTimeline:
    additions = TraceAdditions.of(about)
    parts = _devices(columns, clock_zero, additions)
    rows = AllocationRows.join([part.rows for part in parts])
    context = AllocationContext(columns, np.concatenate([part.entry for part in parts]), additions, clock_zero)
    attributes, (ranges, range_names) = context.attributes(), context.ranges()
    step, counted = steps(rows, ranges, range_names)
    timeline = AllocationTimeline(
        source="trace",
        rows=rows.replace(step=step, **attributes),
        devices=tuple(_described(part.totals, about) for part in parts),
        reservations=ReservationRows.join([part.reservations for part in parts]),
        ranges=ranges,
        stacks=context.stacks.table(),
        modules=tuple(context.stacks.modules),
        operators=tuple(context.operators),
        range_names=range_names,
        about={"file": file, **{key: about[key] for key in _ABOUT_KEYS if key in about}, **_weights(columns)},
    )
    return replace(timeline, notes=_notes_on(timeline, counted))


def _weights(columns: TraceColumns) -> dict[str, Any]:
    """Operators with weights: name, type and shape of each, and how often it was called."""
    weights = [[*weight[:2], list(weight[2]), calls] for weight, calls in columns.weights.items()]
    return {"weights": weights} if weights else {}


def _devices(columns: TraceColumns, clock_zero: int, additions: TraceAdditions) -> list[DeviceRows]:
    """Accelerators in order of their indices, then the CPU."""
    memory = columns.memory
    keys = np.stack([memory["type"] == CPU_TYPE, memory["type"], memory["index"]], axis=1).astype(np.int64)
    devices, inverse = np.unique(keys, axis=0, return_inverse=True)
    entries = (np.flatnonzero(inverse.reshape(-1) == number) for number in range(len(devices)))
    return [rows_of_device(memory, of, number, clock_zero, additions.older) for number, of in enumerate(entries)]


def _described(device: DeviceTotals, about: Mapping[str, Any]) -> DeviceTotals:
    """Add the device's properties in the trace."""
    properties = about.get("deviceProperties") if device.type != CPU_TYPE else None
    for entry in properties if isinstance(properties, list) else []:
        if isinstance(entry, dict) and entry.get("id") == device.index:
            return replace(device, model=str(entry.get("name", "")), total_bytes=entry.get("totalGlobalMem"))
    return device


def _notes_on(timeline: AllocationTimeline, steps_are_counted: bool) -> tuple[str, ...]:
    """Limits of the recording, one sentence each."""
    rows = timeline.rows
    addressed = [bool(rows.address[rows.device == number].any()) for number in range(len(timeline.devices))]
    notes = [note for pair in zip(timeline.devices, addressed, strict=True) for note in _notes_on_device(*pair)]
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
