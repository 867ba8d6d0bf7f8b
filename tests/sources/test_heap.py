from __future__ import annotations

import ctypes
import threading
import types
from typing import Any

import pytest
import torch

from tbmem.sources import heap
from tbmem.sources.heap import MallocHeap
from tbmem.sources.reading import NOTHING, DeviceReading
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
    return MallocHeap(found._mallinfo2, clock=lambda: 0.0)


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
        return types.SimpleNamespace(uordblks=30, hblkhd=100, arena=50)


def test_a_cheap_reading_is_never_rationed() -> None:
    # given
    clock = _Clock()
    malloc = _SlowMalloc(clock, 2e-6)
    cheap = MallocHeap(malloc, clock)
    # when
    readings = [cheap.read() for _ in range(5)]
    # then
    assert readings == [READING] * 5


def test_a_dear_reading_takes_its_share_of_the_time_and_no_more() -> None:
    # given a heap with so many holes that a reading takes 1 ms
    clock = _Clock()
    malloc = _SlowMalloc(clock, 1e-3)
    dear = MallocHeap(malloc, clock)
    # when steps of 10 ms go by for ten seconds
    readings = 0
    for _ in range(1000):
        clock.now += 10e-3
        readings += dear.read() == READING
    # then it read, and took no more than half a per cent
    assert readings == malloc.calls
    assert 0.003 < malloc.calls * 1e-3 / clock.now <= 0.0055


def test_the_first_steps_are_all_read_however_short_they_are() -> None:
    # given steps of a fifth of a millisecond, and readings that take 10 µs: five per cent of the time
    clock = _Clock()
    malloc = _SlowMalloc(clock, 10e-6)
    heap = MallocHeap(malloc, clock)
    # when
    readings = []
    for _ in range(20_000):
        clock.now += 200e-6
        readings.append(heap.read() == READING)
    # then
    assert all(readings[:300])
    assert sum(readings[-5_000:]) * 10e-6 == pytest.approx(0.005 * 5_000 * 210e-6, rel=0.1)


def test_one_slow_reading_is_no_reason_to_look_away() -> None:
    # given a reading in whose middle something else had the processor for a second
    clock = _Clock()
    malloc = _SlowMalloc(clock, 2e-6)
    heap = MallocHeap(malloc, clock)
    heap.read()
    malloc.seconds = 1.0
    heap.read()
    malloc.seconds = 2e-6
    # when / then
    assert heap.read() == READING


def test_after_a_pause_there_is_credit_again() -> None:
    # given a dear heap whose credit is used up
    clock = _Clock()
    heap = MallocHeap(_SlowMalloc(clock, 1e-3), clock)
    while heap.read() == READING:
        clock.now += 1e-3
    early = heap.read()
    # when half a second goes by
    clock.now += 0.5
    # then
    assert (early, heap.read(), heap.read()) == (NOTHING, READING, READING)


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
        return self._result


@pytest.fixture
def preloaded(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A process whose malloc is another one, while libc's ``mallinfo2`` is still there and stands still."""
    library = types.SimpleNamespace(
        mallinfo2=_Function(types.SimpleNamespace(uordblks=1, hblkhd=2, arena=3)),
        malloc=_Function(4096),
        free=_Function(None),
    )
    monkeypatch.setattr(heap.ctypes, "PyDLL", lambda name: library)
    return library


def test_a_malloc_that_does_not_count_is_unusable(preloaded: types.SimpleNamespace) -> None:
    # when
    found = MallocHeap.of_this_process()
    # then
    assert not found.usable


def test_a_libc_without_the_function_is_unusable(preloaded: types.SimpleNamespace) -> None:
    # given musl
    del preloaded.mallinfo2
    # when
    found = MallocHeap.of_this_process()
    # then
    assert not found.usable
