"""Reads traces of torch.profiler, plain or gzip, into an AllocationTimeline, as a stream and without torch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.errors import FileFormatError, NoMemoryEventsError
from tbmem.model.columns import I64
from tbmem.model.operator_calls import OperatorCalls
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, DeviceTotals, ReservationRows
from tbmem.model.trace_additions import TraceAdditions
from tbmem.sources.json_events import JsonEvents
from tbmem.sources.opened import opened
from tbmem.sources.ranges import steps
from tbmem.sources.trace_calls import calls_of
from tbmem.sources.trace_columns import TraceColumns
from tbmem.sources.trace_notes import notes_on
from tbmem.sources.trace_ranges import Running
from tbmem.sources.trace_rows import CPU_TYPE, DeviceRows, rows_of_device

_KEPT = ("host_name", "distributedInfo", "displayTimeUnit", "record_shapes", "with_stack", "profile_memory", "trace_id")


def read_trace(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read what ``torch.profiler`` or tbmem wrote: ``*.pt.trace.json`` or ``*.pt.trace.json.gz``.

    Raises:
        NoMemoryEventsError: No allocations were recorded; the message says what to set.
        FileFormatError: The file is damaged, cut off, or something else.
        OSError: The file cannot be read.
    """
    place = os.fspath(path)
    columns, events = _columns(place)
    return _timeline_or_why(columns, events, place)


def read_trace_with_calls(path: str | os.PathLike[str]) -> tuple[AllocationTimeline, OperatorCalls]:
    """The same, with each call of an operator and the memory events of its thread.

    Raises:
        FileFormatError: As ``read_trace``.
        OSError: The file cannot be read.
    """
    place = os.fspath(path)
    columns, events = _columns(place)
    timeline = _timeline_or_why(columns, events, place)
    return timeline, calls_of(columns, timeline, int(events.about.get("baseTimeNanoseconds", 0)))


def _timeline_or_why(columns: TraceColumns, events: JsonEvents, place: str) -> AllocationTimeline:
    if not len(columns.memory):
        raise NoMemoryEventsError(f"{place}: {_why_nothing(events)}")
    return _timeline(columns, events.about, os.path.basename(place))


def _columns(place: str) -> tuple[TraceColumns, JsonEvents]:
    columns = TraceColumns()
    with opened(place) as file:
        events = JsonEvents(file, place)
        try:
            for batch in events:
                columns.add(batch)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, FileFormatError):
                raise
            what = f"an event near number {events.count} is none of torch.profiler ({error})"
            raise FileFormatError(f"{place}: {what}") from error
    return columns, events


def _why_nothing(events: JsonEvents) -> str:
    if not events.count:
        return "a trace without any event: the profiler was stopped before anything ran in its active steps"
    return (
        f"{events.count} events, none of them [memory]: record with torch.profiler.profile(profile_memory=True), and"
        " without profile_all_threads=True, which drops them"
    )


def _timeline(columns: TraceColumns, about: Mapping[str, Any], file: str) -> AllocationTimeline:
    zero = int(about.get("baseTimeNanoseconds", 0))
    additions = TraceAdditions.of(about)
    parts = _devices(columns, zero, additions)
    rows = AllocationRows.join([part.rows for part in parts])
    running = Running(columns, np.concatenate([part.entry for part in parts]), additions, zero)
    attributes = running.attributes()
    ranges = running.ranges()
    step, counted = steps(rows, ranges, running.range_names.table())
    timeline = AllocationTimeline(
        source="trace",
        rows=rows.replace(step=step, **attributes),
        devices=tuple(_described(part.totals, about) for part in parts),
        reservations=ReservationRows.join([part.reservations for part in parts]),
        ranges=ranges,
        stacks=running.stacks.builder.table(),
        modules=running.stacks.modules.table(),
        operators=running.operators.table(),
        range_names=running.range_names.table(),
        about={"file": file, **{key: about[key] for key in _KEPT if key in about}},
    )
    return replace(timeline, notes=notes_on(timeline, steps_are_counted=counted))


def _devices(columns: TraceColumns, zero: int, additions: TraceAdditions) -> list[DeviceRows]:
    """Accelerators first, in order of their numbers, then the CPU."""
    memory = columns.memory
    kinds = np.stack([memory["type"] == CPU_TYPE, memory["type"], memory["index"]], axis=1).astype(np.int64)
    names, which = np.unique(kinds, axis=0, return_inverse=True)
    flat: I64 = which.reshape(-1)
    each = [np.flatnonzero(flat == number) for number in range(len(names))]
    return [rows_of_device(memory, which, number, zero, additions.older) for number, which in enumerate(each)]


def _described(device: DeviceTotals, about: Mapping[str, Any]) -> DeviceTotals:
    """With what the trace tells of the device itself."""
    known = about.get("deviceProperties") if device.type != CPU_TYPE else None
    for one in known if isinstance(known, list) else []:
        if isinstance(one, dict) and one.get("id") == device.index:
            return replace(device, model=str(one.get("name", "")), total_bytes=one.get("totalGlobalMem"))
    return device
