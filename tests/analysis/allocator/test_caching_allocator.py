"""The allocator's rules, one by one, on small cases that can be worked out by hand."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.caching_allocator import CachingAllocator, SimulatedOutOfMemory
from tbmem.analysis.allocator.replay import holding
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import parse_settings
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import GIB, MIB


def allocator(text: str = "", total: int = 80 * GIB) -> CachingAllocator:
    return CachingAllocator(parse_settings(text), SimpleDevice(total))


def test_small_requests_share_a_segment() -> None:
    sim = allocator()

    first, second = sim.malloc(100), sim.malloc(100)

    assert second.address == first.address + 512
    assert (sim.reserved, sim.allocated) == (2 * MIB, 1024)


def test_what_is_left_of_a_large_block_is_split_off_only_above_one_mebibyte() -> None:
    sim = allocator()

    block = sim.malloc(19 * MIB)

    assert block.size == 20 * MIB
    assert sim.allocated == 20 * MIB


def test_the_smallest_block_that_fits_is_taken_and_neighbours_merge() -> None:
    sim = allocator()
    blocks = [sim.malloc(size * MIB) for size in (30, 20, 40)]
    wanted = blocks[0].address
    for block in blocks:
        sim.free(block)

    taken = sim.malloc(25 * MIB)

    assert taken.address == wanted
    sim.free(taken)
    assert holding(sim).cached == sim.reserved == 90 * MIB


def test_streams_and_pools_do_not_share() -> None:
    sim = allocator()
    sim.free(sim.malloc(4 * MIB))

    sim.malloc(4 * MIB, stream=5)
    sim.malloc(4 * MIB, pool_id=1)

    assert sim.reserved == 60 * MIB


def test_memory_that_another_stream_still_uses_is_neither_allocated_nor_free() -> None:
    sim = allocator()
    block = sim.malloc(4 * MIB)

    sim.request_free(block)

    assert (sim.allocated, sim.active) == (0, 4 * MIB)
    assert sim.malloc(4 * MIB).address != block.address
    sim.complete_free(block)
    assert sim.active == 4 * MIB


def test_a_full_device_gets_cached_memory_back_and_is_asked_again() -> None:
    sim = allocator(total=100 * MIB)
    sim.free(sim.malloc(60 * MIB))

    sim.malloc(70 * MIB)

    assert [change.change for change in sim.changes] == [
        ReservationKind.ALLOC,
        ReservationKind.FREE,
        ReservationKind.ALLOC,
    ]


@pytest.mark.parametrize(
    ("text", "held", "asked", "reason"),
    [
        ("", (60,), 60, "and the device has 100.00 MiB"),
        ("", (), 200, "the device gives this process 100.00 MiB in all"),
        ("per_process_memory_fraction:0.5", (30,), 30, "this process may reserve 50.00 MiB"),
        ("per_process_memory_fraction:0.5", (), 60, "the device gives this process 50.00 MiB in all"),
        (
            "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True",
            (30,),
            30,
            "this process may reserve 50.00 MiB",
        ),
    ],
)
def test_out_of_memory_has_a_reason(text: str, held: tuple[int, ...], asked: int, reason: str) -> None:
    sim = allocator(text, total=100 * MIB)
    for size in held:
        sim.malloc(size * MIB)

    with pytest.raises(SimulatedOutOfMemory) as caught:
        sim.malloc(asked * MIB)

    assert reason in str(caught.value)
    assert "could not be allocated" in str(caught.value)


def test_free_memory_in_pieces_is_named_as_fragmentation() -> None:
    sim = allocator(total=40 * MIB)
    blocks = [sim.malloc(9 * MIB) for _ in range(4)]
    sim.free(blocks[0])
    sim.free(blocks[2])

    with pytest.raises(SimulatedOutOfMemory) as caught:
        sim.malloc(18 * MIB)

    assert "in pieces" in str(caught.value)
    assert holding(sim).fragmented == 22 * MIB


def test_blocks_from_max_split_size_on_stay_whole() -> None:
    sim = allocator("max_split_size_mb:40")
    sim.free(sim.malloc(60 * MIB))

    small = sim.malloc(30 * MIB)
    near = sim.malloc(50 * MIB)

    assert small.size == 30 * MIB
    assert near.size == 60 * MIB
    assert [change.size for change in sim.changes] == [60 * MIB, 30 * MIB]


def test_emptying_everything_leaves_nothing() -> None:
    for text in ("", "expandable_segments:True", "max_split_size_mb:32"):
        sim = allocator(text)
        blocks = [sim.malloc(size) for size in range(1, 40 * MIB, 3 * MIB - 77)]
        for block in blocks[::2] + blocks[1::2]:
            sim.free(block)

        sim.empty_cache()

        assert (sim.reserved, sim.allocated, sim.active) == (0, 0, 0)
