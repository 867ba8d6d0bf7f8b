"""Segments and blocks to scale."""

from __future__ import annotations

from tbmem.present.views.segments import ALLOCATED, FRAGMENTED, segments_view
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tests.offline.snapshots import snapshot
from tests.present.views.recordings import two_steps, view_of


def test_blocks_fill_their_segment() -> None:
    # given 1000 and 5000 bytes, in blocks of 1024 and 5120, and 4096 bytes behind them
    answer = segments_view(view_of(timeline_of_snapshot(snapshot([1000, 5000], freed=[700]))))

    segments, blocks = answer["segments"], answer["blocks"]
    assert (blocks["offset"], blocks["bytes"]) == ([0, 1024, 6144], [1024, 5120, 4096])
    assert blocks["requested"][:2] == [1000, 5000]
    assert blocks["state"] == [ALLOCATED, ALLOCATED, FRAGMENTED]
    assert (segments["start"], segments["bytes"], segments["pool"]) == ([0, 3], [10240], ["default"])
    assert answer["reserved"] == sum(answer["parts"]["bytes"]) == 10240
    assert answer["allocated"] == 6144
    assert answer["empty"] is None


def test_the_settings_of_the_allocator_are_those_of_the_snapshot() -> None:
    recorded = {**snapshot([1000]), "allocator_settings": {"expandable_segments": False, "max_split_size": -1}}

    answer = segments_view(view_of(timeline_of_snapshot(recorded)))

    assert answer["settings"] == {"expandable_segments": "False", "max_split_size": "-1"}


def test_small_neighbours_of_one_state_share_a_pixel() -> None:
    # given 4000 blocks of 512 bytes beside one of 40 MiB: a pixel of 2000 has room for 41 of them
    answer = segments_view(view_of(timeline_of_snapshot(snapshot([512] * 4000 + [40 << 20]))))

    blocks = answer["blocks"]
    assert len(blocks["bytes"]) < 110
    assert sum(blocks["bytes"]) == answer["reserved"]
    assert answer["blocks_count"] == 4002
    # a merged block stands for no allocation
    assert blocks["row"][0] == -1
    assert blocks["row"][-2] >= 0
    # and none overlaps the next
    ends = [offset + size for offset, size in zip(blocks["offset"], blocks["bytes"], strict=True)]
    assert blocks["offset"][1:] == ends[:-1]


def test_a_recording_of_the_cpu_has_none() -> None:
    answer = segments_view(two_steps())

    assert answer["segments_count"] == 0
    assert answer["segments"]["start"] == [0]
    assert answer["empty"]["title"].startswith("This recording does not say how")
