"""Reads CUDA memory snapshots of torch 2.0 and later into an AllocationTimeline."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from tbmem.errors import FileFormatError
from tbmem.model.stacks import Names, Numbering
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import AllocationRows, BlockRows, DeviceTotals, MarkRows, ReservationRows, SegmentRows
from tbmem.sources.events.annotations import STEPS_ARE_COUNTED, phases, read_ranges, steps
from tbmem.sources.events.compressed_file import load_plain_pickle
from tbmem.sources.gc_pause import gc_paused
from tbmem.sources.snapshot.allocations import DeviceRows, rows_of_device
from tbmem.sources.snapshot.events import marks, read_events, reservations
from tbmem.sources.snapshot.plain_values import check_records, plain_settings, require_texts
from tbmem.sources.snapshot.segments import Pools, read_segments
from tbmem.sources.snapshot.stacks import SnapshotStacks
from tbmem.units import format_bytes

_MOST_DEVICES = 256


def read_snapshot(path: str | os.PathLike[str]) -> AllocationTimeline:
    """Read a file of ``torch.cuda.memory._dump_snapshot`` or tbmem.

    Raises:
        UnsafeFileError: The pickle requests code to be run; nothing was run.
        FileFormatError: The file is damaged, is something else, or is empty.
    """
    with gc_paused():
        # in a function, so that the snapshot is freed before the collector is enabled again
        return _read(os.fspath(path))


def _read(path: str) -> AllocationTimeline:
    snapshot, unpacked = load_plain_pickle(path)
    try:
        check_records(*_parts(snapshot), unpacked)
        return timeline_of_snapshot(snapshot, about={"file": os.path.basename(path)})
    except FileFormatError as error:
        raise FileFormatError(f"{path}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        what = f"{type(error).__name__}: {error}"
        raise FileFormatError(f"{path}: a memory snapshot whose parts do not fit together ({what})") from error


def timeline_of_snapshot(snapshot: Any, about: dict[str, Any] | None = None) -> AllocationTimeline:
    """Convert a result of ``torch.cuda.memory._snapshot()`` or ``memory_snapshot()``.

    Raises:
        FileFormatError: It is something else, or empty.
    """
    segments, traces = _parts(snapshot)
    return _Reader(segments, traces).timeline(snapshot if isinstance(snapshot, dict) else {}, about or {})


def _parts(snapshot: Any) -> tuple[list[dict[str, Any]], list[list[dict[str, Any]]]]:
    segments = snapshot.get("segments") if isinstance(snapshot, dict) else snapshot
    if not isinstance(segments, list) or any(
        not isinstance(segment, dict) or "blocks" not in segment for segment in segments
    ):
        raise FileFormatError(f"a pickle of something else, not a memory snapshot of torch ({_described(snapshot)})")
    traces = snapshot.get("device_traces") or [] if isinstance(snapshot, dict) else []
    if not segments and not any(traces):
        raise FileFormatError(
            "a memory snapshot with no segments and no events: the process had allocated nothing on a CUDA device"
            " when it was taken; take it later, in the process that trains"
        )
    return segments, traces


def _described(snapshot: Any) -> str:
    if isinstance(snapshot, dict):
        keys = ", ".join(repr(key[:40]) for key in list(snapshot)[:4] if isinstance(key, str))
        return f"a dict with the keys {keys}" if keys else "an empty dict"
    name = type(snapshot).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class _Reader:
    """Reads one snapshot; extends its tables of stacks and names."""

    def __init__(self, segments: list[dict[str, Any]], traces: list[list[dict[str, Any]]]) -> None:
        self._segments, self._traces = segments, traces
        indices = {int(segment.get("device", 0)) for segment in segments}
        indices |= {index for index, trace in enumerate(traces) if trace}
        if len(indices) > _MOST_DEVICES:
            raise FileFormatError(f"a memory snapshot of {len(indices)} devices, which no machine has")
        self._devices = {index: number for number, index in enumerate(sorted(indices))}
        self._stacks, self._pools = SnapshotStacks(), Pools({(0, 0): 0})
        self._contexts, self._names = Names(), Numbering[str]()
        self._rows = 0

    def timeline(self, snapshot: dict[str, Any], about: dict[str, Any]) -> AllocationTimeline:
        segments, blocks = read_segments(self._segments, self._devices, self._pools, self._stacks)
        parts = [self._device(index, segments, blocks) for index in self._devices]
        rows = AllocationRows.join([device.rows for device, _, _ in parts])
        annotations = snapshot.get("external_annotations") or []
        require_texts(annotation.get("name", "") for annotation in annotations)
        ranges = read_ranges(annotations, self._devices, self._names)
        stacks, range_names = self._stacks.table(), tuple(self._names)
        step, counted = steps(rows, ranges, range_names)
        timeline = AllocationTimeline(
            source="snapshot",
            rows=rows.replace(phase=phases(rows, ranges, stacks), step=step),
            devices=tuple(device.totals for device, _, _ in parts),
            segments=segments,
            blocks=blocks,
            reservations=ReservationRows.join([changes for _, changes, _ in parts]),
            marks=MarkRows.join([device_marks for _, _, device_marks in parts]),
            ranges=ranges,
            stacks=stacks,
            pools=tuple(self._pools),
            contexts=tuple(self._contexts),
            range_names=range_names,
            settings=plain_settings(snapshot.get("allocator_settings")),
            about=about,
        )
        return replace(timeline, notes=_notes_on(timeline, counted))

    def _device(
        self, index: int, segments: SegmentRows, blocks: BlockRows
    ) -> tuple[DeviceRows, ReservationRows, MarkRows]:
        number = self._devices[index]
        trace = self._traces[index] if index < len(self._traces) else []
        events = read_events(trace, self._stacks, self._pools, self._contexts)
        changes = reservations(events, number)
        on_device = np.flatnonzero(segments.device[blocks.segment] == number)
        device = rows_of_device(events, segments, blocks.take(on_device), number, index, int(changes.bytes.sum()))
        blocks.row[on_device] = np.where(device.row_of_block < 0, -1, device.row_of_block + self._rows)
        self._rows += len(device.rows)
        return device, changes, marks(events, trace, number)


def _notes_on(timeline: AllocationTimeline, steps_are_counted: bool) -> tuple[str, ...]:
    """Limits of the recording, one sentence each."""
    notes = [f"{device.name}: {note}" for device in timeline.devices for note in _notes_on_device(device)]
    recorded = timeline.rows.alloc_event >= 0
    if recorded.any() and not (timeline.rows.alloc_ns[recorded] >= 0).any():
        notes.append("The events have no times (torch 2.0): they are in order, but nothing is known of durations.")
    bare = int((timeline.rows.stack < 0).sum())
    if bare:
        notes.append(
            f"{bare} of {len(timeline.rows)} allocations have no stack: they were made before the recording began, by a"
            " thread without Python, or with stacks turned off."
        )
    if steps_are_counted:
        notes.append(STEPS_ARE_COUNTED)
    return tuple(notes)


def _notes_on_device(device: DeviceTotals) -> list[str]:
    notes = []
    if device.allocs + device.frees <= 1:
        notes.append(
            "no history was recorded, only the state when the snapshot was taken: the real peak may have been higher,"
            " and neither a leak nor a request that failed can be seen (record with"
            " torch.cuda.memory._record_memory_history())."
        )
    elif device.base_bytes > 0:
        notes.append(
            f"{format_bytes(device.base_bytes)} had been allocated when the history begins, because"
            " recording began late or its ring buffer (max_entries) overflowed; an earlier peak is not seen."
        )
    if device.unmatched_frees:
        notes.append(f"{device.unmatched_frees} frees are of blocks that are older than the history.")
    lost = device.lost_frees + device.repeated_allocs
    if lost:
        notes.append(
            f"the frees of {lost} allocations are missing: recording was paused; until then these count as alive."
        )
    if device.unlisted_bytes:
        notes.append(
            f"events and blocks differ by {format_bytes(abs(device.unlisted_bytes))}, which no allocation explains."
        )
    return notes
