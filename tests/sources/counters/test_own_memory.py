from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import pytest

from tbmem.model.sample import NOTHING, DeviceReading
from tbmem.sources.counters import own_memory as own
from tbmem.sources.counters.child_processes import resident_bytes
from tbmem.sources.counters.malloc import MallocHeap
from tbmem.sources.counters.own_memory import OwnMemory, OwnUse
from tests.sources.fakes import MIB


class FakeProcess:
    """Resident memory and what malloc has handed out, in MiB."""

    def __init__(self) -> None:
        self.resident = self.alive = 100
        self.own = OwnMemory(lambda: self.resident * MIB)

    def add(self, count: int, *, freed: int = 0) -> None:
        self.resident += count - freed
        self.alive += count - freed

    def read(self) -> DeviceReading:
        return NOTHING._replace(allocated=self.alive * MIB)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> FakeProcess:
    fake = FakeProcess()
    monkeypatch.setattr(own, "find_trim", lambda: None)
    monkeypatch.setattr(own.MallocHeap, "of_this_process", lambda: fake)
    return fake


@pytest.fixture
def libc() -> Any:
    if not MallocHeap.of_this_process().usable:
        pytest.skip("malloc here is not glibc's")
    library = ctypes.PyDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    library.malloc_trim(0)  # what tests before have left free is not resident
    return library


def test_what_is_added_by_own_work_counts_and_what_the_program_adds_does_not(process: FakeProcess) -> None:
    # when
    with process.own.working():
        process.add(4)
        with process.own.working():
            process.add(3)
    process.add(50)
    # then: work within work counts once
    assert process.own.bytes == 7 * MIB


def test_records_that_a_recording_leaves_resident_count(process: FakeProcess) -> None:
    # given: profiling is switched on, then the program keeps 5 MiB, and 30 MiB of records are made
    use = OwnUse(process.own)
    with use.working():
        process.add(2)
    process.add(35)
    # when: the records are freed, but 10 MiB of their pages stay with malloc
    with use.working(collects=True):
        process.add(0, freed=30)
        process.resident += 10
    use.give_back()
    # then
    assert process.own.bytes == 12 * MIB


def test_python_collects_nothing_while_a_recording_works(process: FakeProcess) -> None:
    use = OwnUse(process.own)
    with use.working():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_memory_that_the_program_leaks_while_it_is_recorded_is_its_own(process: FakeProcess) -> None:
    # given: 100 MiB that the program adds, of which malloc shows little, and 30 MiB of records
    use = OwnUse(process.own)
    process.add(30)
    process.resident += 100
    # when
    with use.working(collects=True):
        process.add(0, freed=30)
    use.give_back()
    # then
    assert process.own.bytes == 0


def test_pages_of_the_programs_that_are_returned_are_not_subtracted_twice(process: FakeProcess) -> None:
    # given: what tbmem has added before
    process.own.add(9 * MIB)
    use = OwnUse(process.own)
    # when: the heap's free pages are returned, which were the program's
    with use.working(collects=True):
        process.resident -= 40
    use.give_back()
    # then
    assert process.own.bytes == 9 * MIB


def _leave_holes(libc: Any) -> list[int]:
    """Blocks of 64 KiB of which every other is freed; returns those that still lie between them."""
    blocks = [libc.malloc(64 * 1024) for _ in range(1024)]
    for block in blocks:
        ctypes.memset(block, 1, 64 * 1024)
    for block in blocks[::2]:
        libc.free(block)
    return blocks[1::2]


def test_what_a_recording_has_left_free_is_given_back(libc: Any) -> None:
    # given
    own_use = OwnUse()
    kept = _leave_holes(libc)
    before = resident_bytes(os.getpid())
    # when
    own_use.give_back()
    # then: half of 64 MiB, less the pages that the blocks share
    assert before - resident_bytes(os.getpid()) > 24 * MIB
    for block in kept:
        libc.free(block)


def test_a_heap_that_has_not_grown_is_left_as_it_is(libc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # given: what is free is the program's own
    calls: list[int] = []
    monkeypatch.setattr(own, "find_trim", lambda: calls.append)
    kept = _leave_holes(libc)
    # when
    OwnUse().give_back()
    # then
    assert calls == []
    for block in kept:
        libc.free(block)
