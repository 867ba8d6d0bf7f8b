"""Neighbouring blocks, and the order in which a pool is searched."""

from __future__ import annotations

from tbmem.analysis.allocator.blocks import Block, Pool
from tbmem.analysis.allocator.caching_allocator import CachingAllocator
from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.units import MIB


def _block(pool: Pool, address: int, size: int, **fields: int | bool) -> Block:
    return Block(pool, fields.pop("stream", 0), address, size, fields.pop("age", 0), **fields)  # type: ignore[arg-type]


def _row(pool: Pool) -> list[Block]:
    """Three adjacent blocks of 100, 200 and 300 bytes."""
    first, second, third = _block(pool, 0, 100), _block(pool, 100, 200), _block(pool, 300, 300)
    second.insert_after(first)
    third.insert_after(second)
    return [first, second, third]


def test_a_freed_block_takes_in_both_free_neighbours() -> None:
    # given
    pool = Pool(small=True)
    first, second, third = _row(pool)
    pool.add(first)
    pool.add(third)
    # when
    second.merge(second.prev)
    second.merge(second.next)
    # then it is the whole segment, and the pool has neither of the others
    assert (second.address, second.size, second.is_split) == (0, 600, False)
    assert list(pool.blocks()) == []


def test_a_neighbour_that_is_in_use_or_has_no_memory_stays() -> None:
    # given
    pool = Pool(small=True)
    first, second, third = _row(pool)
    first.busy, third.mapped = True, False
    pool.add(third)
    # when
    second.merge(first)
    second.merge(third)
    # then
    assert (second.address, second.size) == (100, 200)
    assert (second.prev, second.next) == (first, third)


def test_a_block_that_is_inserted_before_another_has_its_neighbours() -> None:
    # given
    pool = Pool(small=False)
    first, second, _ = _row(pool)
    between = _block(pool, 100, 50)
    # when
    between.insert_before(second)
    # then
    assert (first.next, between.prev, between.next, second.prev) == (between, first, second, between)


def test_free_blocks_come_by_stream_size_age_and_address() -> None:
    # given in another order
    pool = Pool(small=False)
    values = [(7, 100, 0, 0), (0, 300, 0, 0), (0, 200, 2, 0), (0, 200, 1, 900), (0, 200, 1, 400)]
    for stream, size, age, address in values:
        pool.add(_block(pool, address, size, stream=stream, age=age))
    # when
    found = [(block.stream, block.size, block.age, block.address) for block in pool.blocks()]
    # then
    assert found == sorted(values)
    # and of blocks that are alike in size the right one is removed
    pool.remove(next(block for block in pool.blocks() if block.address == 900))
    assert [entry for entry in found if entry[3] != 900] == [
        (block.stream, block.size, block.age, block.address) for block in pool.blocks()
    ]


def test_of_two_blocks_of_one_size_the_lower_or_the_older_is_taken() -> None:
    class Downwards(SimpleDevice):
        def reserve(self, size: int) -> int:
            return 2**40 - super().reserve(size) % 2**39

    for by_age in (False, True):
        sim = CachingAllocator(device=Downwards(), ties_by_age=by_age)
        blocks = [sim.malloc(30 * MIB) for _ in range(2)]
        for block in blocks:
            sim.free(block)

        taken = sim.malloc(30 * MIB)

        assert taken.address == blocks[0 if by_age else 1].address
