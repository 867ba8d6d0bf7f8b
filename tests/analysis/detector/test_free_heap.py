"""What malloc keeps free, by hand-built samples of the CPU."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.detector.free_heap import FreeHeap
from tbmem.model.sample import MemorySample
from tests.conftest import MIB


def _step(
    step: int, allocated: int | None, reserved: int | None, resident: int, *, time: float | None = None
) -> dict[str, Any]:
    return {
        "step": step,
        "time": 1000.0 + step if time is None else time,
        "device": "cpu",
        "allocated": None if allocated is None else allocated * MIB,
        "reserved": None if reserved is None else reserved * MIB,
        "host_rss": resident * MIB,
    }


def _note(heap: FreeHeap, step: dict[str, Any], *, profiled: bool = False) -> None:
    heap.note_end(_columns(step, profiled=profiled))


def _columns(step: dict[str, Any], *, profiled: bool = False) -> Any:
    return MemorySample(*((value,) for value in MemorySample(**step, profiled=profiled)))  # type: ignore[arg-type]


def test_before_a_reading_nothing_is_known() -> None:
    heap = FreeHeap()

    _note(heap, _step(1, None, None, 300))

    assert heap.at_last_end() is None


def test_what_the_process_has_grown_by_since_a_reading_counts_as_free() -> None:
    # given 40 MiB that malloc has free
    heap = FreeHeap()
    _note(heap, _step(1, 100, 140, 300))
    # when the next step is not read, and 5 MiB more are resident
    _note(heap, _step(2, None, None, 305))
    # then
    assert heap.at_last_end() == 45 * MIB


def test_pages_that_a_recording_has_given_back_are_not_free_memory() -> None:
    # given
    heap = FreeHeap()
    _note(heap, _step(1, 100, 140, 300))
    # when a recording gives 20 MiB of the heap's pages back to the system
    heap.begin_recording()
    _note(heap, _step(2, 100, 140, 280), profiled=True)
    heap.end_recording()
    assert heap.at_last_end() is None
    after = _step(3, 100, 140, 280)
    heap.note_given_back(_columns(after))
    _note(heap, after)
    # then they have to come back before they are of use
    assert heap.gave_back
    assert (heap.given_back, heap.absent) == (20 * MIB, 20 * MIB)
    assert heap.at_last_end() == 20 * MIB


def test_a_step_is_judged_too_low_while_the_resident_memory_is_older_than_mallocs_figures() -> None:
    # given a heap of which a part has been given back, while the resident memory was not read again
    heap = FreeHeap()
    _note(heap, _step(1, 100, 200, 300, time=1000.0))
    # when
    _note(heap, _step(2, 100, 140, 300, time=1000.01))
    # then what was given back counts as free
    assert heap.at_last_end() == 100 * MIB
