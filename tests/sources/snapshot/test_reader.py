"""Memory snapshots as timelines: every layout, the corpus, and bad files."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from tbmem.errors import FileFormatError
from tbmem.model.stacks import Frame
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BlockState
from tbmem.sources.snapshot.reader import read_snapshot, timeline_of_snapshot
from tests.sources.snapshot.snapshots import FRAMES, block, one_of_everything, segment, snapshot


def test_the_layout_of_torch_2_0() -> None:
    # given frames in the history, newest first, no addresses of blocks, no times
    history = [{"addr": 1024, "real_size": 500, "frames": FRAMES}, {"addr": 1024, "real_size": 9, "frames": []}]
    old = [
        {"size": 1024, "state": "inactive"},
        {"size": 512, "state": "active_allocated", "history": history},
        {"size": 512, "requested_size": 400, "state": "active_awaiting_free", "history": history},
    ]
    trace = [{"action": "free_completed", "addr": 5, "size": 100, "stream": 0}]

    timeline = timeline_of_snapshot({"segments": [segment(0, *old)], "device_traces": [trace]})

    assert timeline.devices[0].requested_bytes == 900
    assert timeline.devices[0].allocated_bytes == 512
    assert timeline.devices[0].active_bytes == 1024
    assert timeline.peak(0) == (1000, -1, -1)
    assert timeline.blocks.address.tolist() == [0, 1024, 1536]
    assert timeline.frames(1) == (Frame("train.py", 7, "loop"),)


def test_a_bare_list_of_segments_is_a_snapshot_too() -> None:
    assert timeline_of_snapshot([segment(0, block(512, 500))]).peak(0).bytes == 500


def _whole() -> bytes:
    return pickle.dumps(one_of_everything(), protocol=4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (_whole()[:-40], "cut off"),
        (gzip.compress(_whole())[:-20], "cut off"),
        (gzip.compress(_whole())[:-4], "cut off"),
        (gzip.compress(_whole())[:-8] + bytes(8), "damaged or cut off"),
        (b"\x80\x04\x95" + b"\xff" * 7 + b"\x3fN.", "frame"),
        (b"\x93 no pickle", "not a pickle"),
        (b"PK\x03\x04" + bytes(99), "not a pickle"),
        (pickle.dumps({"state_dict": {}, "epoch": 3}), "'state_dict', 'epoch'"),
        (pickle.dumps([1, 2]), "a list"),
        (pickle.dumps(snapshot(segment(0, block(-512, 0)))), "less than nothing"),
        (pickle.dumps("text"), "something else"),
        (pickle.dumps({"segments": [], "device_traces": [[], []]}), "no segments and no events"),
        (pickle.dumps({"segments": [{"blocks": [{"state": "inactive"}]}]}), "do not fit together"),
        (pickle.dumps({"segments": [], "device_traces": [[1]]}), "do not fit together"),
    ],
)
def test_bad_files_are_one_clear_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "s.pickle"
    path.write_bytes(content)

    with pytest.raises(FileFormatError) as caught:
        read_snapshot(path)

    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_snapshot_of_the_corpus_agrees_with_the_oracle(corpus: Path) -> None:
    oracle = json.loads((corpus / "oracle.json").read_text())["snapshots"]

    for name, expected in oracle.items():
        timeline = read_snapshot(corpus / "snapshots" / name)
        found = {str(device.index): figures(timeline, number) for number, device in enumerate(timeline.devices)}
        wanted = {
            index: {key: value for key, value in values.items() if key in found[index]}
            for index, values in expected["devices"].items()
        }
        assert found == wanted, name


def figures(timeline: AllocationTimeline, number: int) -> dict[str, int | None]:
    """A device's figures under the oracle's names; what is alive adds up on the way."""
    device, peak = timeline.devices[number], timeline.peak(number)
    segments = timeline.segments.take(timeline.segments.device == number)
    blocks = timeline.blocks.take(timeline.segments.device[timeline.blocks.segment] == number)
    rows = timeline.rows.take(timeline.rows.device == number)
    recorded, inactive = rows.alloc_event >= 0, blocks.bytes[blocks.state == BlockState.INACTIVE]
    times = np.concatenate([rows.alloc_ns[recorded], rows.free_ns[rows.free_event >= 0]])
    assert timeline.rows.bytes[timeline.alive_at(number, peak.event)].sum() + device.unlisted_bytes == peak.bytes
    assert timeline.rows.bytes[timeline.alive_at_end(number)].sum() == device.requested_bytes
    assert (times >= 0).all() or (times == -1).all()
    return {
        "segments": len(segments),
        "blocks": len(blocks),
        "reserved": device.reserved_bytes,
        "active_size": device.active_bytes,
        "allocated_size": device.allocated_bytes,
        "requested": device.requested_bytes,
        "inactive": int(inactive.sum()),
        "largest_inactive": int(inactive.max(initial=0)),
        "events": device.events,
        "net_requested_delta": (device.requested_bytes or 0) - device.base_bytes,
        "base_requested": device.base_bytes,
        "peak_requested": peak.bytes,
        "peak_event_index": peak.event,
        "unmatched_frees": device.unmatched_frees,
        "dup_allocs": device.repeated_allocs,
        "live_at_end_not_in_blocks": device.lost_frees,
        "live_at_end": int((recorded & (rows.free_event == ALIVE)).sum()),
        "total_alloc_bytes": int(rows.bytes[recorded].sum()),
        "base_reserved": device.base_reserved_bytes,
        "peak_reserved": timeline.peak_reserved(number).bytes,  # type: ignore[union-attr]
        "ooms": device.ooms,
    }
