"""Memory snapshots become timelines: every layout, what is not known, and nothing is run."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbmem.errors import FileFormatError, UnsafeFileError
from tbmem.model.category import Phase
from tbmem.model.stacks import Frame
from tbmem.model.timeline import AllocationTimeline
from tbmem.model.timeline_tables import ALIVE, BEFORE, LOST, BlockState, MarkKind, ReservationKind, SegmentKind
from tbmem.sources.snapshot.reader import read_snapshot, timeline_of_snapshot

Snapshot = dict[str, Any]
FRAMES = [{"filename": "train.py", "name": "loop", "line": 7}]


def event(action: str, addr: int = 0, size: int = 0, time_us: int = 0, **others: Any) -> Snapshot:
    return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": FRAMES, **others}


def block(size: int, requested: int, state: str = "active_allocated", **others: Any) -> Snapshot:
    return {"size": size, "requested_size": requested, "state": state, "frames": FRAMES, **others}


def segment(address: int, *blocks: Snapshot, **others: Any) -> Snapshot:
    total = sum(one["size"] for one in blocks)
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "stream": 0,
        "segment_type": "large",
        "blocks": list(blocks),
        **others,
    }


def snapshot(*segments: Snapshot, trace: list[Snapshot] | None = None, **others: Any) -> Snapshot:
    return {"segments": list(segments), "device_traces": [trace or []], **others}


def one_of_everything() -> Snapshot:
    """Base 1000 + 300; then an allocation that stays, one that goes, and the free of the 300."""
    return snapshot(
        segment(0, block(1024, 1000), block(512, 500), block(512, 0, "inactive")),
        trace=[
            event("alloc", 1024, 500, 10),
            event("alloc", 1536, 400, 20),
            event("free_requested", 1536, 400, 30),
            event("free_completed", 1536, 400, 31),
            event("free_completed", 9999, 300, 40),
        ],
    )


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


def test_out_of_memory_is_a_mark() -> None:
    # given an OOM event, which has no address but what the device had free, and an action of the future
    oom = {"action": "oom", "device_free": 3, "size": 999, "stream": 0, "time_us": 5, "frames": FRAMES}

    timeline = timeline_of_snapshot(
        snapshot(segment(0, block(512, 500)), trace=[oom, event("sneeze"), event("snapshot")])
    )

    assert timeline.marks.kind.tolist() == [MarkKind.OOM, MarkKind.OTHER, MarkKind.SNAPSHOT]
    assert timeline.marks.bytes.tolist()[0] == 999
    assert timeline.marks.device_free_bytes.tolist()[0] == 3
    assert timeline.devices[0].ooms == 1


def test_pending_frees_are_active_but_not_allocated() -> None:
    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500, "active_pending_free"))))

    assert timeline.blocks.state.tolist() == [BlockState.PENDING_FREE]
    assert (timeline.devices[0].allocated_bytes, timeline.devices[0].active_bytes) == (0, 512)


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


def test_blocks_lie_where_the_file_says() -> None:
    # given blocks that are out of order, with a hole between them
    blocks = (block(512, 500, address=4096), block(512, 7, address=1024))

    timeline = timeline_of_snapshot(snapshot(segment(1024, *blocks), trace=[event("alloc", 4096, 500)]))

    assert timeline.blocks.address.tolist() == [4096, 1024]
    assert timeline.blocks.row.tolist() == [0, 1]


def test_annotations_become_ranges_steps_and_phases() -> None:
    def mark(stage: str, name: str, time_us: int) -> Snapshot:
        return {"stage": stage, "name": name, "device": 0, "time_us": time_us}

    annotations = [
        mark("START", "ProfilerStep#4", 0),
        mark("START", "Optimizer.step#SGD.step", 20),
        mark("END", "Optimizer.step#SGD.step", 30),
        mark("END", "ProfilerStep#4", 40),
        mark("START", "never ended", 50),
    ]
    trace = [event("alloc", 0, 500, 10), event("alloc", 512, 300, 25), event("alloc", 1024, 200, 45)]
    blocks = [block(512, 500), block(512, 300), block(512, 200)]

    timeline = timeline_of_snapshot(snapshot(segment(0, *blocks), trace=trace, external_annotations=annotations))

    assert timeline.rows.step.tolist() == [4, 4, -1]
    assert timeline.rows.phase.tolist() == [Phase.OTHER, Phase.OPTIMIZER, Phase.OTHER]
    assert timeline.range_names == ("ProfilerStep#4", "Optimizer.step#SGD.step", "never ended")
    assert timeline.ranges.end_ns.tolist() == [40_000, 30_000, -1]


def test_steps_without_names_are_counted_by_the_first_optimizer() -> None:
    names = ["Optimizer.step#A.step", "Optimizer.step#B.step"] * 2
    annotations = [
        {"stage": stage, "name": name, "device": 0, "time_us": 10 * place + (stage == "END")}
        for place, name in enumerate(names)
        for stage in ("START", "END")
    ]
    trace = [event("alloc", 512 * place, 500, 10 * place + 5) for place in range(4)]

    timeline = timeline_of_snapshot(
        snapshot(segment(0, *[block(512, 500)] * 4), trace=trace, external_annotations=annotations)
    )

    assert timeline.rows.step.tolist() == [1, 1, 2, 2]
    assert any("counted from 0" in note for note in timeline.notes)


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([("torch/nn/modules/module.py", "_call_impl")], Phase.FORWARD),
        (
            [("torch/nn/modules/module.py", "_call_impl"), ("torch/autograd/graph.py", "_engine_run_backward")],
            Phase.BACKWARD,
        ),
        ([("engine.cpp", "torch::autograd::Engine::thread_main(x)")], Phase.BACKWARD),
        ([("C:\\lib\\torch\\optim\\adam.py", "step")], Phase.OPTIMIZER),
        ([("train.py", "main")], Phase.OTHER),
    ],
)
def test_stacks_tell_the_phase(frames: list[tuple[str, str]], phase: Phase) -> None:
    stack = [{"filename": file, "name": name, "line": 1} for file, name in frames]
    trace = [{**event("alloc", 0, 500), "frames": stack}]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500)), trace=trace))

    assert timeline.rows.phase.tolist() == [phase]


def test_with_python_stacks_only_a_thread_without_python_is_autograds() -> None:
    trace = [event("alloc", 0, 500), {**event("alloc", 512, 300), "frames": []}]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500), block(512, 300)), trace=trace))

    assert timeline.rows.phase.tolist() == [Phase.OTHER, Phase.BACKWARD]


def test_contexts_are_kept_where_they_say_something() -> None:
    trace = [
        event("alloc", 0, 500, compile_context="0/1", user_metadata="mine"),
        event("alloc", 512, 300, compile_context="N/A", user_metadata=""),
    ]

    timeline = timeline_of_snapshot(snapshot(segment(0, block(512, 500), block(512, 300)), trace=trace))

    assert timeline.contexts == ("mine; 0/1",)
    assert timeline.rows.context.tolist() == [0, -1]


class _Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("import pathlib; pathlib.Path('ran').touch()",))


@pytest.mark.parametrize("thing", [_Hostile(), {"segments": [_Hostile()]}, np.float64(1)])
def test_a_hostile_pickle_is_refused_and_nothing_ran(tmp_path: Path, monkeypatch: Any, thing: object) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.pickle").write_bytes(pickle.dumps(thing))

    with pytest.raises(UnsafeFileError, match=r"s\.pickle: the pickle asks for .*nothing was run"):
        read_snapshot("s.pickle")

    assert not (tmp_path / "ran").exists()


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
        (b"\x80\x04\x95" + b"\xff" * 7 + b"\x3fN.", "MemoryError"),
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


def test_a_packed_snapshot_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "s.pickle.gz").write_bytes(gzip.compress(_whole()))

    assert read_snapshot(tmp_path / "s.pickle.gz").peak(0).bytes == 2200


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
