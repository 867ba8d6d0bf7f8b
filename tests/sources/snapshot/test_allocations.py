"""Allocations and totals of a device in a snapshot."""

from __future__ import annotations

from tbmem.model.stacks import Frame
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.sources.snapshot.snapshots import block, event, one_of_everything, segment, snapshot


def test_the_peak_is_base_plus_the_largest_sum_anchored_at_the_final_blocks() -> None:
    timeline = timeline_of_snapshot(one_of_everything())

    device = timeline.devices[0]
    assert (device.requested_bytes, device.base_bytes, device.unlisted_bytes) == (1500, 1300, 0)
    assert timeline.peak(0) == (2200, 1, 20_000)
    assert timeline.curve(0).bytes.tolist() == [1300, 1800, 2200, 1800, 1500]
    assert device.unmatched_frees == 1


def test_rows_tell_what_was_there_before_and_what_stays() -> None:
    rows = timeline_of_snapshot(one_of_everything()).rows

    assert rows.bytes.tolist() == [500, 400, 300, 1000]
    assert rows.alloc_event.tolist() == [0, 1, BEFORE, BEFORE]
    assert rows.free_event.tolist() == [ALIVE, 3, 4, ALIVE]
    assert rows.free_requested_event.tolist() == [-1, 2, -1, -1]
    assert rows.rounded_bytes.tolist() == [512, -1, -1, 1024]
    assert rows.address.tolist() == [1024, 1536, 9999, 0]


def test_blocks_point_to_their_rows() -> None:
    timeline = timeline_of_snapshot(one_of_everything())

    assert timeline.blocks.row.tolist() == [3, 0, -1]
    assert timeline.blocks.address.tolist() == [0, 1024, 1536]
    assert timeline.segments.requested_bytes.tolist() == [1500]
    assert timeline.frames(0) == (Frame("train.py", 7, "loop"),)


def test_several_devices_are_kept_apart() -> None:
    # given the same address on two devices, and one device with events only
    first, second = segment(0, block(512, 500)), segment(0, block(512, 300), device=2)
    traces = [
        [event("alloc", 0, 500)],
        [],
        [event("alloc", 0, 300)],
        [event("alloc", 0, 7), event("free_completed", 0, 7)],
    ]

    timeline = timeline_of_snapshot({"segments": [first, second], "device_traces": traces})

    assert [device.name for device in timeline.devices] == ["cuda:0", "cuda:2", "cuda:3"]
    assert [timeline.peak(number).bytes for number in range(3)] == [500, 300, 7]
    assert timeline.blocks.row.tolist() == [0, 1]
    assert timeline.rows.device.tolist() == [0, 1, 2]


def test_events_that_do_not_say_their_pool_have_that_of_the_segment_they_lie_in() -> None:
    """Given an older torch, a pool's segment and one where another was, then pools are told where they are known."""
    pools = segment(4096, block(512, 512), segment_pool_id=(0, 1)), segment(0, block(4096, 4000))
    trace = [
        event("alloc", 4096, 300),
        event("free_completed", 4096, 300),
        event("segment_free", 4096, 512),
        event("segment_alloc", 4096, 512),
        event("alloc", 4096, 512),
        event("alloc", 0, 4000),
        event("alloc", 90000, 8),
    ]

    timeline = timeline_of_snapshot({"segments": list(pools), "device_traces": [trace]})

    assert timeline.rows.pool.tolist() == [-1, timeline.pools.index((0, 1)), timeline.pools.index((0, 0)), -1]


def test_frees_that_are_missing_are_counted_and_said() -> None:
    # given an address allocated twice, and an allocation that is not among the blocks
    trace = [event("alloc", 0, 500), event("alloc", 0, 500), event("alloc", 7000, 300)]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500)), trace=trace))

    device = timeline.devices[0]
    assert (device.repeated_allocs, device.lost_frees) == (1, 1)
    assert timeline.rows.free_event.tolist() == [LOST, ALIVE, LOST]
    assert any("the frees of 2 allocations are missing" in note for note in timeline.notes)


def test_a_pause_of_the_recording_keeps_the_curve_true_to_the_events() -> None:
    # given an allocation of 500 whose free, and the allocation of 80 that followed it there, were not recorded
    trace = [event("alloc", 0, 500), event("free_completed", 0, 80), event("alloc", 512, 30)]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 0, "inactive"), block(512, 30)), trace=trace))

    # then each event counts with its own size, as in a replay: 30 at the end, 450 less before
    assert timeline.curve(0).bytes.tolist() == [-420, 80, 0, 30]
    assert timeline.rows.free_event.tolist() == [LOST, ALIVE, 1]
    # and no free is of an address at which nothing was open
    assert timeline.devices[0].unmatched_frees == 0
