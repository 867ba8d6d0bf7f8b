from __future__ import annotations

import ctypes
import threading
import types
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tbmem.model.sample import NOTHING, DeviceReading
from tbmem.sources.counters import malloc as heap
from tbmem.sources.counters.malloc import MallocHeap
from tbmem.sources.counters.malloc_counters import find_counters
from tests.sources.fakes import MIB


@pytest.fixture
def libc() -> Any:
    library = ctypes.PyDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.restype, library.free.argtypes = None, [ctypes.c_void_p]
    return library


@pytest.fixture
def process_heap() -> MallocHeap:
    """The real heap, without rationing."""
    found = MallocHeap.of_this_process()
    if not found.usable:
        pytest.skip("malloc here is not glibc's")
    return MallocHeap(found._counters, clock=lambda: 0.0, worked=lambda: 0.0)


def _read(source: MallocHeap) -> tuple[int, int]:
    allocated, reserved, *_ = source.read()
    assert allocated is not None
    assert reserved is not None
    return allocated, reserved


@pytest.mark.parametrize("size", [100_000, 64 * MIB], ids=["in the arena", "mapped on its own"])
def test_a_block_of_known_size_is_counted(process_heap: MallocHeap, libc: Any, size: int) -> None:
    # given
    before, _ = _read(process_heap)
    # when
    block = libc.malloc(size)
    after, held = _read(process_heap)
    libc.free(block)
    freed, _ = _read(process_heap)
    # then, page rounding and this test's own objects aside
    assert after - before == pytest.approx(size, abs=32 * 1024)
    assert freed - before == pytest.approx(0, abs=32 * 1024)
    assert held >= after


def test_a_tensor_is_counted(process_heap: MallocHeap) -> None:
    # given
    before, _ = _read(process_heap)
    # when
    tensor = torch.empty(32 * MIB, dtype=torch.uint8)
    after, _ = _read(process_heap)
    # then
    assert after - before == pytest.approx(tensor.untyped_storage().nbytes(), abs=64 * 1024)


def test_blocks_of_another_thread_are_counted(process_heap: MallocHeap, libc: Any) -> None:
    # given
    before, _ = _read(process_heap)
    blocks: list[int] = []
    # when a thread, which has an arena of its own, allocates many small blocks
    thread = threading.Thread(target=lambda: blocks.extend(libc.malloc(10_000) for _ in range(400)))
    thread.start()
    thread.join()
    after, _ = _read(process_heap)
    for block in blocks:
        libc.free(block)
    # then
    assert after - before == pytest.approx(400 * 10_000, rel=0.1)


class _Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


READING = DeviceReading(allocated=130, reserved=150)
"""What ``_SlowMalloc`` tells."""


class _SlowMalloc:
    """``mallinfo2`` that takes its time."""

    def __init__(self, clock: _Clock, seconds: float) -> None:
        self.calls = 0
        self._clock = clock
        self.seconds = seconds

    def __call__(self) -> Any:
        self.calls += 1
        self._clock.now += self.seconds
        return 130, 150


def _readings(heap: MallocHeap, clock: _Clock, *, steps: int, seconds: float) -> list[bool]:
    """Whether each of some steps of one length was read."""
    readings = []
    for _ in range(steps):
        clock.now += seconds
        readings.append(heap.read() == READING)
    return readings


def test_a_cheap_reading_is_never_rationed() -> None:
    # given
    clock = _Clock()
    malloc = _SlowMalloc(clock, 9e-6)
    cheap = MallocHeap(malloc, clock, clock)
    # when
    readings = [cheap.read() for _ in range(5)]
    # then
    assert readings == [READING] * 5


def test_a_dear_reading_takes_its_share_of_the_time_and_no_more() -> None:
    # given a heap with so many holes that a reading takes 3 ms
    clock = _Clock()
    malloc = _SlowMalloc(clock, 3e-3)
    dear = MallocHeap(malloc, clock, clock)
    # when steps of 10 ms go by for ten seconds, and ten more
    first = sum(_readings(dear, clock, steps=1000, seconds=10e-3))
    began = clock.now
    second = sum(_readings(dear, clock, steps=1000, seconds=10e-3))
    # then it read, and took no more than it may take at the beginning, and after that 0.3 % of the time
    assert first + second == malloc.calls
    assert first * 3e-3 <= 0.245
    assert 0.002 < second * 3e-3 / (clock.now - began) <= 0.0035


def test_in_a_run_of_some_hundred_steps_a_dear_reading_is_a_dozen_steps_old_at_most() -> None:
    # given a heap with so many holes that a reading takes 3 ms
    clock = _Clock()
    dear = MallocHeap(_SlowMalloc(clock, 3e-3), clock, clock)
    # when
    readings = _readings(dear, clock, steps=500, seconds=10e-3)
    # then
    gaps = "".join("r" if was_read else "." for was_read in readings).split("r")
    assert max(map(len, gaps)) <= 12


def test_on_a_slow_machine_there_are_enough_readings_for_a_verdict_all_the_same() -> None:
    # given a reading that takes 0.6 ms
    clock = _Clock()
    slow = MallocHeap(_SlowMalloc(clock, 0.6e-3), clock, clock)
    # when / then: each third step is read at first, and after 120 readings as many as their share of the time allows
    assert sum(_readings(slow, clock, steps=300, seconds=1e-3)) == pytest.approx(100, abs=3)
    assert sum(_readings(slow, clock, steps=600, seconds=1e-3)) < 40


def test_a_leak_in_the_second_half_of_a_short_run_is_seen_in_some_dozen_readings() -> None:
    # given steps of 5 ms, of which the first 150 have used what readings may take at the beginning
    clock = _Clock()
    malloc = _SlowMalloc(clock, 0.14e-3)
    heap = MallocHeap(malloc, clock, clock)
    assert sum(_readings(heap, clock, steps=150, seconds=5e-3)) > 140
    # when what leaks makes a reading take 0.5 ms
    malloc.seconds = 0.5e-3
    readings = _readings(heap, clock, steps=150, seconds=5e-3)
    # then
    assert sum(readings) >= 15
    # and in the minute after that no more than 0.1 s and its share of the time
    more = sum(_readings(heap, clock, steps=12_000, seconds=5e-3))
    assert more * 0.5e-3 < 0.1 + 0.0035 * 60


def test_what_is_rationed_reads_again_when_it_is_due() -> None:
    # given
    clock = _Clock()
    dear = MallocHeap(_SlowMalloc(clock, 30e-3), clock, clock)
    first = [dear.read() for _ in range(3)]
    # when
    clock.now = 0.06 + 9.9
    early = dear.read()
    clock.now = 0.06 + 10.1
    due = dear.read()
    # then
    assert (first, early, due) == ([READING] * 3, NOTHING, READING)


def test_a_machine_that_was_busy_twice_is_not_the_heaps_fault() -> None:
    # given two readings that were interrupted
    clock = _Clock()
    malloc = _SlowMalloc(clock, 10e-3)
    heap = MallocHeap(malloc, clock, clock)
    heap.read()
    heap.read()
    # when
    malloc.seconds = 1e-6
    # then
    assert [heap.read() for _ in range(5)] == [READING] * 5


def test_in_short_steps_a_dear_reading_is_due_after_as_many_steps_as_pay_for_it() -> None:
    # given steps that take no time, and a reading of 1.25 ms
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 1.25e-3), clock, clock)
    for _ in range(3):
        heap.read()
    # when / then: 250 µs a step
    assert [heap.read() == READING for _ in range(24)].count(True) == 4


def test_inside_a_framework_no_step_of_the_beginning_goes_by_unread() -> None:
    # given a trainer's steps of 3 ms, in a heap where a reading takes 0.2 ms
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 200e-6), clock, clock)
    # when
    readings = _readings(heap, clock, steps=100, seconds=3e-3)
    # then a spike of one step cannot fall between two readings
    assert all(readings)


def test_a_long_loop_of_short_steps_is_read_less_often_after_a_thousand_steps() -> None:
    # given steps of a third of a millisecond, and readings that take 9 µs: three per cent of the time
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 9e-6), clock, clock)
    # when
    readings = _readings(heap, clock, steps=5_000, seconds=330e-6)
    # then one in 20 ms is left
    assert all(readings[:1000])
    assert sum(readings[-2500:]) == pytest.approx(2500 * 330e-6 / 0.02, rel=0.05)


def test_the_time_between_two_readings_can_be_longer() -> None:
    # given
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 9e-6), clock, clock, interval=0.08)
    # when steps take a third of a millisecond
    readings = _readings(heap, clock, steps=5_000, seconds=330e-6)
    # then the beginning is read as ever
    assert all(readings[:1000])
    assert sum(readings[-2500:]) == pytest.approx(2500 * 330e-6 / 0.08, abs=1)


def test_steps_of_more_than_twenty_milliseconds_are_all_read() -> None:
    # given
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 9e-6), clock, clock)
    # when
    readings = _readings(heap, clock, steps=5_000, seconds=21e-3)
    # then
    assert all(readings)


def test_it_tells_how_long_it_rests() -> None:
    # given short steps, and readings that take 90 µs
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 90e-6), clock, clock)
    # when it may still be read at every step
    _readings(heap, clock, steps=200, seconds=330e-6)
    at_first = heap.rest
    # and when what it may take at the beginning is spent, and what it may in a short run
    _readings(heap, clock, steps=1_000, seconds=330e-6)
    in_a_short_run = heap.rest
    _readings(heap, clock, steps=60_000, seconds=330e-6)
    # then
    assert at_first == 0
    assert in_a_short_run == 0.02
    assert heap.rest == pytest.approx(90e-6 / 0.003)


def test_readings_that_cost_nothing_rest_a_little_as_well() -> None:
    # given
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 4e-6), clock, clock)
    # when
    readings = _readings(heap, clock, steps=9_000, seconds=1e-3)
    # then a twentieth of the steps of a millisecond is read in the end
    assert all(readings[:1000])
    assert sum(readings[-3_000:]) == pytest.approx(150, rel=0.05)


def test_without_the_function_there_are_no_figures() -> None:
    # given
    absent = MallocHeap(None)
    # then
    assert not absent.usable
    assert absent.read() == NOTHING


class _Function:
    """A C function that a test makes up; takes the attributes that ctypes wants to set."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def __call__(self, *arguments: Any) -> Any:
        return self._result(*arguments) if callable(self._result) else self._result


def _info(allocated: int) -> types.SimpleNamespace:
    """What mallinfo2 returns."""
    return types.SimpleNamespace(uordblks=allocated, hblkhd=0, arena=allocated)


@pytest.fixture
def preloaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.SimpleNamespace]:
    """A process whose malloc is another one, while libc's ``mallinfo2`` is still there and stands still."""
    library = types.SimpleNamespace(
        mallinfo2=_Function(types.SimpleNamespace(uordblks=1, hblkhd=2, arena=3)),
        malloc=_Function(4096),
        free=_Function(None),
    )
    monkeypatch.setattr(heap.ctypes, "PyDLL", lambda name: library)
    find_counters.cache_clear()
    yield library
    find_counters.cache_clear()


def test_a_malloc_that_does_not_count_is_unusable(preloaded: types.SimpleNamespace) -> None:
    # when
    found = MallocHeap.of_this_process()
    # then
    assert not found.usable


def test_another_thread_that_frees_memory_meanwhile_does_not_hide_the_counters(
    preloaded: types.SimpleNamespace,
) -> None:
    # given that malloc counts, and others free 100 KiB while its counters are read
    allocated = [0]

    def malloc(size: int) -> int:
        allocated[0] += size - 100 * 1024
        return 4096

    preloaded.malloc, preloaded.mallinfo2 = _Function(malloc), _Function(lambda: _info(allocated[0]))
    # when
    found = MallocHeap.of_this_process()
    # then
    assert found.usable


def test_which_malloc_is_in_use_is_found_out_once(preloaded: types.SimpleNamespace) -> None:
    # given a heap in which a reading is dear
    MallocHeap.of_this_process()
    # when another is asked for: a window, or a look
    preloaded.malloc = None
    # then nothing is read for it
    assert not MallocHeap.of_this_process().usable


def test_a_libc_without_the_function_is_unusable(preloaded: types.SimpleNamespace) -> None:
    # given musl
    del preloaded.mallinfo2
    # when
    found = MallocHeap.of_this_process()
    # then
    assert not found.usable


def test_a_busy_machine_does_not_make_readings_rare() -> None:
    # given readings of 9 µs of work, each of which other processes interrupt for 50 ms
    clock, worked = _Clock(), _Clock()
    malloc = _SlowMalloc(worked, 9e-6)

    def interrupted() -> Any:
        clock.now += 50e-3
        return malloc()

    heap = MallocHeap(interrupted, clock, worked)
    # when
    readings = _readings(heap, clock, steps=5000, seconds=5e-3)
    # then
    assert sum(readings) == 5000


def test_another_thread_reads_what_is_allocated_beside_the_last_reading() -> None:
    # given
    figures = [(10 * MIB, 20 * MIB)]
    own = MallocHeap(lambda: figures[-1], clock=lambda: 0.0, worked=lambda: 0.0)
    assert own.meanwhile() is None  # nothing to compare with
    own.read()
    # when
    figures.append((70 * MIB, 80 * MIB))
    # then, and again, since the reading of the training's own stays the last one
    assert [own.meanwhile(), own.meanwhile()] == [(70 * MIB, 10 * MIB)] * 2


@pytest.mark.parametrize(("seconds", "is_read"), [(1e-3, True), (5e-3, False)])
def test_a_heap_that_is_dear_to_read_is_not_read_within_a_step(seconds: float, is_read: bool) -> None:
    # given readings that take milliseconds each
    times = iter(number * seconds for number in range(100))
    own = MallocHeap(lambda: (MIB, MIB), clock=lambda: 0.0, worked=lambda: next(times))
    # when
    for _ in range(3):
        own.read()
    # then
    assert (own.meanwhile() is not None) is is_read
