"""How segments grow, shrink and are released, on small cases that can be worked out by hand."""

from __future__ import annotations

from tbmem.analysis.allocator.segments import SegmentChange, Segments, SimpleDevice
from tbmem.analysis.allocator.settings import parse_settings
from tbmem.model.timeline_tables import ReservationKind
from tbmem.units import GIB, MIB
from tests.analysis.allocator.test_caching_allocator import allocator


def test_a_device_gives_whole_pages_and_no_more_than_it_has() -> None:
    # given
    device = SimpleDevice(total=6 * MIB, outside=1 * MIB)
    # when
    first, second = device.allocate(3 * MIB), device.allocate(2 * MIB)
    # then 3 MiB took two pages of 2 MiB, after which 1 MiB of 6 is left
    assert first is not None
    assert second is None
    assert device.used == 5 * MIB
    # and what is released can be used again, at another address
    device.release(3 * MIB)
    assert device.allocate(4 * MIB) == first + 4 * MIB


def test_unmapped_pages_leave_the_ends_of_a_free_block() -> None:
    # given a segment of 60 MiB in pages of 20, of which the first 15 and the last 15 are in use
    sim = allocator("expandable_segments:True")
    blocks = [sim.malloc(size * MIB) for size in (15, 30, 15)]
    start = blocks[0].address
    sim.free(blocks[1])

    # when the cache is emptied
    sim.empty_cache()

    # then the page between is unmapped, and 5 MiB on either side stay
    assert sim.changes[-1] == SegmentChange(ReservationKind.UNMAP, start + 20 * MIB, 20 * MIB, 0)
    assert sim.reserved == 40 * MIB
    free = [(block.address - start, block.size) for block in sim.free_blocks()]
    assert free == [(15 * MIB, 5 * MIB), (40 * MIB, 5 * MIB)]


def test_a_fraction_of_the_device_is_the_limit() -> None:
    device = SimpleDevice(total=80 * GIB)

    assert Segments(parse_settings("per_process_memory_fraction:0.25"), device, False).allowed == 20 * GIB
    assert Segments(parse_settings(""), device, False).allowed is None


def test_with_max_split_size_only_as_much_is_given_back_as_is_needed() -> None:
    sim = allocator("max_split_size_mb:20", total=170 * MIB)
    blocks = [sim.malloc(size * MIB) for size in (30, 40, 100)]
    for block in blocks:
        sim.free(block)

    sim.malloc(60 * MIB)

    # 100 MiB were too much to round up from 60 (limit 20 MiB), and giving back that one block was enough
    assert [change.size for change in sim.changes if change.change is ReservationKind.FREE] == [100 * MIB]


def test_garbage_collection_gives_back_what_was_not_used_for_longest() -> None:
    sim = allocator("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", total=200 * MIB)
    old = sim.malloc(50 * MIB)
    sim.free(old)
    for _ in range(5):
        sim.free(sim.malloc(30 * MIB, stream=1))

    sim.malloc(60 * MIB)
    sim.malloc(40 * MIB, stream=2)

    freed = [change.size for change in sim.changes if change.change is ReservationKind.FREE]
    assert freed == [50 * MIB]


def test_expandable_segments_grow_page_by_page_and_give_whole_pages_back() -> None:
    sim = allocator("expandable_segments:True")

    blocks = [sim.malloc(15 * MIB), sim.malloc(15 * MIB)]

    assert [change.size for change in sim.changes] == [20 * MIB, 20 * MIB]
    assert blocks[1].address == blocks[0].address + 15 * MIB
    sim.free(blocks[0])
    sim.empty_cache()
    assert sim.reserved == 40 * MIB
    sim.free(blocks[1])
    sim.empty_cache()
    assert sim.reserved == 0


def test_an_expandable_gap_is_filled_before_the_end_grows() -> None:
    sim = allocator("expandable_segments:True")
    blocks = [sim.malloc(20 * MIB) for _ in range(3)]
    sim.free(blocks[0])
    sim.empty_cache()

    again = sim.malloc(20 * MIB)

    assert again.address == blocks[0].address
