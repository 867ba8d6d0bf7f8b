"""Segments and blocks of a snapshot."""

from __future__ import annotations

from tbmem.model.timeline_tables import BlockState, ReservationKind, SegmentKind
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.sources.snapshot.snapshots import block, event, segment, snapshot


def test_streams_pools_and_expandable_segments() -> None:
    # given a private pool, an expandable segment that grew and shrank, and the keys of torch 2.13
    grown = segment(0, block(4096, 4000), is_expandable=True, stream=77, segment_pool_id=(0, 1), segment_type="small")
    trace = [
        event("segment_map", 0, 8192, 1, pool_id=(0, 1)),
        event("alloc", 0, 4000, 2, pool_id=(0, 1), stream=77),
        event("segment_unmap", 4096, 4096, 3, pool_id=(0, 1)),
        event("segment_alloc", 9000, 100, 4, pool_id=(0, 0)),
        event("segment_free", 9000, 100, 5, pool_id=(0, 0)),
    ]

    timeline = timeline_of_snapshot(snapshot(grown, trace=trace, allocator_settings={"expandable_segments": True}))

    assert timeline.pools == ((0, 0), (0, 1))
    assert timeline.rows.pool.tolist() == [1]
    assert timeline.rows.stream.tolist() == [77]
    assert timeline.segments.expandable.tolist() == [1]
    assert timeline.segments.kind.tolist() == [SegmentKind.SMALL]
    assert timeline.reservations.bytes.tolist() == [8192, -4096, 100, -100]
    assert timeline.reservations.kind.tolist()[:2] == [ReservationKind.MAP, ReservationKind.UNMAP]
    assert timeline.devices[0].base_reserved_bytes == 0
    assert timeline.peak_reserved(0) == (8192, 0, 1000)
    assert timeline.settings == {"expandable_segments": True}


def test_pending_frees_are_active_but_not_allocated() -> None:
    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500, "active_pending_free"))))

    assert timeline.blocks.state.tolist() == [BlockState.PENDING_FREE]
    assert (timeline.devices[0].allocated_bytes, timeline.devices[0].active_bytes) == (0, 512)


def test_blocks_lie_where_the_file_says() -> None:
    # given blocks that are out of order, with a hole between them
    blocks = (block(512, 500, address=4096), block(512, 7, address=1024))

    timeline = timeline_of_snapshot(snapshot(segment(1024, *blocks), trace=[event("alloc", 4096, 500)]))

    assert timeline.blocks.address.tolist() == [4096, 1024]
    assert timeline.blocks.row.tolist() == [0, 1]
