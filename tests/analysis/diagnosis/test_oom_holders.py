"""Who holds the blocks: names where something live stands on them, lines where not."""

from __future__ import annotations

from typing import Any

import pytest

from tbmem.analysis.diagnosis.oom_holders import NAMELESS, grown_since, holdings_of, holdings_of_blocks, seen_in_both
from tbmem.analysis.recordings.fragmentation import pieces_of
from tbmem.model.oom import GRAPH_NODES, LiveMemory
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import MIB

BASE = 0x7000_0000_0000
FRAMES = [
    {"filename": "/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
    {"filename": "/home/me/train.py", "line": 31, "name": "forward"},
]


def _live(address: int, size: int, holder: str, part: str = "", device: str = "cuda:0") -> LiveMemory:
    return LiveMemory(device=device, address=address, bytes=size, holder=holder, part=part)


def _snapshot(frames: list[dict[str, Any]] | None = None) -> Any:
    """One segment: a parameter, a gap, an activation, and what is free behind; and one segment of pure cache."""
    blocks = [
        {"size": 4 * MIB, "requested_size": 4 * MIB, "state": "active_allocated", "frames": []},
        {"size": 2 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
        {"size": 6 * MIB, "requested_size": 6 * MIB, "state": "active_allocated", "frames": frames or []},
        {"size": 8 * MIB, "requested_size": 0, "state": "inactive", "frames": []},
    ]
    cache = [{"size": 20 * MIB, "requested_size": 0, "state": "inactive", "frames": []}]
    segments = [
        {"device": 0, "address": BASE, "total_size": 20 * MIB, "stream": 0, "segment_type": "large", "blocks": blocks},
        {
            "device": 0,
            "address": BASE + 64 * MIB,
            "total_size": 20 * MIB,
            "stream": 0,
            "segment_type": "large",
            "blocks": cache,
        },
    ]
    return timeline_of_snapshot({"segments": segments})


def test_a_block_with_a_live_tensor_is_its_holders_and_another_its_lines() -> None:
    # given a parameter on the first block, and stacks
    live = [_live(BASE, 4 * MIB, "parameters of Net", "head.weight")]

    found = holdings_of_blocks(_snapshot(FRAMES), 0, live, {"parameters of Net": ("train.py:5  model = Net()",)})

    assert [(one.name, one.bytes, one.count) for one in found] == [
        ("me/train.py:31 forward", 6 * MIB, 1),
        ("parameters of Net", 4 * MIB, 1),
    ]
    assert found[1].lines == ("train.py:5  model = Net()",)


def test_without_stacks_what_no_tensor_stands_on_is_nameless() -> None:
    names = [one.name for one in holdings_of_blocks(_snapshot(), 0, [], {})]

    assert names == [NAMELESS]


def test_the_pieces_of_an_allocator() -> None:
    pieces = pieces_of(_snapshot(), 0)

    assert (pieces.reserved, pieces.active, pieces.cached) == (40 * MIB, 10 * MIB, 20 * MIB)
    assert (pieces.fragmented, pieces.largest_free, pieces.free) == (10 * MIB, 20 * MIB, 30 * MIB)


def test_what_a_holder_holds_is_counted_without_the_nodes_of_its_graphs() -> None:
    # given two tensors, each with nodes of a graph
    live = [_live(1, 100, "list 'kept'"), _live(2, 100, "list 'kept'")]
    live += [_live(-each, 400, "list 'kept'", part=GRAPH_NODES) for each in (1, 2)]
    # when
    (holding,) = holdings_of(live, "cuda:0", {})
    # then
    assert (holding.count, holding.bytes) == (2, 1000)


def test_holders_of_live_memory_are_of_one_device_and_count_each_address_once() -> None:
    live = [
        _live(1, 10, "list 'a'", "x"),
        _live(2, 30, "list 'a'", "y"),
        _live(1, 10, "tensor 'b'"),
        _live(3, 35, "tensor 'c'"),
        _live(4, 1000, "elsewhere", device="cpu"),
    ]

    found = holdings_of(live, "cuda:0", {"list 'a'": ("f.py:1  a.append(x)",)})

    assert [(one.name, one.bytes, one.count, one.largest) for one in found] == [
        ("list 'a'", 40, 2, "y"),
        ("tensor 'c'", 35, 1, ""),
    ]
    assert found[0].lines == ("f.py:1  a.append(x)",)


def test_what_only_the_longer_of_two_searches_has_named_is_not_new() -> None:
    # given a tensor with a graph and an array that are older than both searches, but named by the second one only
    before = [_live(1, 100, "tensors without a name"), _live(2, 50, "list 'a'")]
    found_later = [
        _live(1, 100, "tensor 'old'"),
        _live(-1, 400, "tensor 'old'", part=GRAPH_NODES),
        _live(9, 30, "tensor 'old'", part="saved by MulBackward0"),
        _live(-2, 70, "array 'x'"),
    ]
    # and a list that has a new tensor with a graph, beside one of before
    added = [_live(2, 50, "list 'a'"), _live(3, 60, "list 'a'"), _live(4, 20, "list 'a'", part="saved by AddBackward0")]
    # when
    known, now = (holdings_of(live, "cuda:0", {}) for live in seen_in_both(before, [*found_later, *added]))
    # then
    assert [(one.name, one.bytes) for one in grown_since(known, now)] == [("list 'a'", 80)]


@pytest.mark.parametrize("name", ["Yiyi-philosophy__oom_snapshot__fc31f1e", "volcengine__mem__001e30b"])
def test_real_snapshots_have_their_blocks_told_to_the_byte(corpus: Any, name: str) -> None:
    # given a snapshot that somebody wrote when memory ran out, of which only the segments are read
    from tbmem.sources.events.compressed_file import load_plain_pickle

    snapshot = load_plain_pickle(str(corpus / "snapshots" / f"{name}.pickle")).value
    timeline = timeline_of_snapshot({"segments": snapshot["segments"]})

    # when its holders are found
    found = holdings_of_blocks(timeline, 0, [], {})

    # then they add up to what the independent replay calls active, largest first
    pieces = pieces_of(timeline, 0)
    used = sum(
        block["size"]
        for segment in snapshot["segments"]
        for block in segment["blocks"]
        if block["state"] != "inactive" and segment.get("device", 0) == 0
    )
    assert sum(one.bytes for one in found) == pieces.active == used
    assert [one.bytes for one in found] == sorted((one.bytes for one in found), reverse=True)
