"""What malloc keeps free in its heap, and what of that heap is not resident, step by step."""

from __future__ import annotations

from typing import Any

from tbmem.units import MIB

_GIVEN_BACK = 4 * MIB
"""Bytes of the heap that are not in memory from which on pages were given back: less comes from untouched ones."""
_STANDS_STILL = 1 * MIB
"""Change of resident memory, or of malloc's heap, in bytes, that says nothing."""
_FALLS_WITH, _LONGEST_BEHIND = 0.5, 0.1
"""Part by which the resident memory falls with malloc's heap, and seconds after which it must have been read again."""


class FreeHeap:
    """Notes of the CPU's samples what malloc had free; each call gets columns, each field of ``MemorySample`` one."""

    def __init__(self) -> None:
        self._free: tuple[int, int] | None = None
        """Bytes that malloc had free at its last reading, and the resident memory then."""
        self._resident: int | None = None  # at the last step's end
        self._before: tuple[int, int] | None = None  # malloc's heap and the resident memory at its last reading
        self._behind = (-1, 0.0, 0)
        """Resident memory older than malloc's figures, since when it is, and the heap before it fell."""
        self._is_behind = False
        self._outside = self._outside_plain = 0  # resident bytes outside of malloc's heap, in all or plain steps
        self.given_back = 0
        """Bytes of malloc's heap that recordings have given back to the system so far: resident again once they are
        used. Each time counts, since the fall is not judged, as the recording is not, but the rise is."""
        self.absent = self._absent_before = 0
        """Bytes of the heap that were not resident at the last step's end, and before the last recording."""
        self.gave_back = False
        """Whether free pages of the heap were given back to the system after a recording."""
        self._awaits_reading = False  # whether malloc's counters were not read yet after the last recording

    def begin_recording(self) -> None:
        """Steps are recorded from now on: the profiler's own records lie in the same heap."""
        self._absent_before = self.absent

    def end_recording(self) -> None:
        """They are no longer; what was free is not known before the next reading."""
        self._awaits_reading = True
        self._free = None

    def note_given_back(self, columns: Any) -> None:
        """Note what of the heap was given back after a recording, at the first reading of malloc's counters."""
        if not self._awaits_reading:
            return
        readings = (self._not_resident(columns, at) for at in range(len(columns.step)))
        absent = next((reading for reading in readings if reading is not None), None)
        if absent is not None:
            self._awaits_reading = False
            self.given_back += max(absent - self._absent_before, 0)
            self.gave_back = absent > _GIVEN_BACK

    def at_last_end(self) -> int | None:
        """Bytes that malloc had free at the last step's end; ``None`` where that is not known.

        What the resident memory has changed by since malloc's counters were read counts as free memory, so that a step
        is judged too low rather than too high.
        """
        if self._free is None or self._resident is None:
            return None
        free, resident = self._free
        return max(free + self._resident - resident, 0)

    def note(self, columns: Any, at: int) -> None:
        """Note one of the steps."""
        free, self._resident = self._free_in(columns, at), columns.host_rss[at]
        self._note_behind(columns, at)
        if free is not None:
            # the peak of the next step may still be that of before: judged too low rather than too high
            fell = max(self._behind[2] - columns.reserved[at], 0) if self._is_behind else 0
            self._free = free + fell, columns.host_rss[at] or 0
        absent = self._not_resident(columns, at)
        if absent is not None:
            self.absent = absent

    def note_end(self, columns: Any) -> None:
        """Note the last of the steps, those that are recorded as well."""
        self.note(columns, -1)
        resident, reserved = columns.host_rss[-1], columns.reserved[-1]
        if resident is None or reserved is None or self._is_behind:
            return
        self._outside = max(self._outside, resident - reserved)
        if not columns.profiled[-1]:
            self._outside_plain = max(self._outside_plain, resident - reserved)

    def _note_behind(self, columns: Any, at: int) -> None:
        """Note whether the resident memory, read less often, is from before malloc gave memory back."""
        reserved, resident, time = columns.reserved[at], columns.host_rss[at], columns.time[at]
        if reserved is None or resident is None:
            return
        if self._before is not None:
            fell, sank = self._before[0] - reserved, self._before[1] - resident
            # what a recording had given back may have come back instead
            is_more = resident - reserved > self._outside_plain + _STANDS_STILL
            if fell > _STANDS_STILL and sank < _FALLS_WITH * fell and is_more:
                before = self._behind[2] if resident == self._behind[0] else 0
                self._behind = (resident, time, max(self._before[0], before))
        self._before = (reserved, resident)
        self._is_behind = resident == self._behind[0] and time < self._behind[1] + _LONGEST_BEHIND

    def _free_in(self, columns: Any, at: int) -> int | None:
        """Resident bytes that malloc had free when a step ended; ``None`` where its counters were not read."""
        level, reserved = columns.allocated[at], columns.reserved[at]
        if level is None or reserved is None:
            return None
        free: int = reserved - level
        return max(free - (self._not_resident(columns, at) or 0), 0) if self.gave_back else free

    def _not_resident(self, columns: Any, at: int) -> int | None:
        """Bytes of malloc's heap that are not in memory; ``None`` where its counters were not read."""
        resident, reserved = columns.host_rss[at], columns.reserved[at]
        known = resident is not None and reserved is not None
        return max(self._outside - (resident - reserved), 0) if known else None
