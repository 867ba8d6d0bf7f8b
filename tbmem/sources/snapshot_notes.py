"""A timeline that was read from a snapshot goes in, sentences on what it cannot know come out."""

from __future__ import annotations

from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import DeviceTotals
from tbmem.units import format_bytes


def notes_on(timeline: AllocationTimeline, *, steps_are_counted: bool) -> tuple[str, ...]:
    """What is not known, one sentence each.

    Args:
        timeline: As read.
        steps_are_counted: Whether steps are counted by the optimizer's steps.
    """
    notes = [note for device in timeline.devices for note in _notes_on_device(device)]
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
        notes.append("The steps have no names: they are counted from 0 by the steps of the optimizer.")
    return tuple(notes)


def _notes_on_device(device: DeviceTotals) -> list[str]:
    notes = []
    if device.allocs + device.frees <= 1:
        notes.append(
            f"{device.name}: no history was recorded, only the state when the snapshot was taken; the real peak may"
            " have been higher (record with enabled='all')."
        )
    elif device.base_bytes > 0:
        notes.append(
            f"{device.name}: {format_bytes(device.base_bytes)} had been allocated when the history begins, because"
            " recording began late or its ring buffer (max_entries) overflowed; an earlier peak is not seen."
        )
    if device.unmatched_frees:
        notes.append(f"{device.name}: {device.unmatched_frees} frees are of blocks that are older than the history.")
    lost = device.lost_frees + device.repeated_allocs
    if lost:
        notes.append(
            f"{device.name}: the frees of {lost} allocations are missing: recording was paused; until then these count"
            " as alive."
        )
    if device.unlisted_bytes:
        notes.append(
            f"{device.name}: events and blocks differ by {format_bytes(abs(device.unlisted_bytes))}, which no"
            " allocation explains."
        )
    return notes
