"""Sentences on what a timeline that was read from a trace cannot know."""

from __future__ import annotations

from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import DeviceTotals
from tbmem.sources.trace_rows import CPU_TYPE
from tbmem.units import format_bytes

_STALE = (
    " They may include memory that was freed while no profiler was on: torch counts memory of the CPU only under a"
    " profiler, so levels of two such traces cannot be compared."
)


def notes_on(timeline: AllocationTimeline, *, steps_are_counted: bool) -> tuple[str, ...]:
    """What is not known, one sentence each.

    Args:
        timeline: As read.
        steps_are_counted: Whether steps are counted by the optimizer's steps.
    """
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
    bare = int((timeline.rows.stack[recorded] < 0).sum())
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
        notes.append("The steps have no names: they are counted from 0 by the steps of the optimizer.")
    return tuple(notes)


def _notes_on_device(device: DeviceTotals, has_addresses: bool) -> list[str]:
    notes = []
    if not device.base_is_known:
        notes.append(
            f"{device.name}: the events have no totals, so the curve begins at 0: what was allocated before is missing."
        )
    elif device.unlisted_bytes > 0:
        notes.append(
            f"{device.name}: {format_bytes(device.unlisted_bytes)} had been allocated before the recording and were"
            " not freed in it: nothing more is known of them." + (_STALE if device.type == CPU_TYPE else "")
        )
    if device.unmatched_frees and not has_addresses:
        notes.append(
            f"{device.name}: {device.unmatched_frees} frees follow another free. A replay by address calls them"
            " unmatched, as all have the same (none); here they are matched by size."
        )
    elif device.unmatched_frees:
        notes.append(f"{device.name}: {device.unmatched_frees} frees are of memory that is older than the recording.")
    if device.repeated_allocs:
        notes.append(
            f"{device.name}: the frees of {device.repeated_allocs} allocations are missing (made by a thread that was"
            " not recorded): they count as alive."
        )
    if device.unexplained_changes:
        notes.append(
            f"{device.name}: {device.unexplained_changes} times the total changed by more or less than the event says"
            " (events of another thread are missing, or their order is): the total counts, the rest is unknown."
        )
    if device.out_of_order:
        notes.append(
            f"{device.name}: {device.out_of_order} events stood in the file after later ones, and were sorted."
        )
    return notes
