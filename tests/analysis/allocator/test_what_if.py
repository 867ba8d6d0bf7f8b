"""Recordings under other settings of the allocator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.analysis.allocator.segments import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.allocator.what_if import DEFAULTS, FailedRequest, replay_timeline, what_ifs
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.errors import UsageError
from tbmem.model.gpus import gpu_named
from tbmem.present.text.what_if import what_if_lines, what_if_view
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.units import GIB, MIB
from tests.analysis.allocator.recording import Recorder, busy_recorder
from tests.analysis.estimates.test_fit import run
from tests.analysis.timelines import recording

EXPANDABLE = parse_settings("expandable_segments:True")


def as_snapshot(recorder: Recorder, first: int) -> dict[str, Any]:
    """As torch writes it."""
    trace = [
        {"action": kind.name.lower(), "addr": key, "size": size, "stream": stream, "time_us": number, "frames": []}
        for number, (kind, key, size, stream, _) in enumerate(recorder.rows[first:])
    ]
    segments = []
    for blocks in recorder.segments():
        first_block, entries = blocks[0], []
        for block in blocks:
            state = "active_allocated" if block.allocated else "active_pending_free" if block.busy else "inactive"
            entry = {"address": block.address, "size": block.size, "state": state}
            entries.append({**entry, "requested_size": block.requested} if block.busy else entry)
        segments.append(
            {
                "device": 0,
                "address": first_block.address,
                "total_size": sum(block.size for block in blocks),
                "stream": first_block.stream,
                "segment_type": "small" if first_block.pool.small else "large",
                "is_expandable": first_block.range is not None,
                "segment_pool_id": (0, 0),
                "blocks": entries,
            }
        )
    return {"segments": segments, "device_traces": [trace]}


def test_an_estimate_before_and_after() -> None:
    timeline = timeline_of_run(run(), AllocatorSettings())

    (found,) = what_ifs(timeline, [EXPANDABLE])
    (after,) = found.after

    assert found.recorded_reserved == found.before.peak_reserved == 500 * MIB
    assert found.before.settings == DEFAULTS
    assert after.settings == "expandable_segments:True"
    # the last two could go back: free pages of 20 MiB are cache, not pieces
    assert (after.peak_reserved, after.end_cached, after.end_fragmented) == (500 * MIB, 200 * MIB, 0)
    assert found.before.allocated_percent == pytest.approx(90)
    assert found.note == ""


def test_a_recording_that_begins_in_the_middle_says_so() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=3)
    timeline = timeline_of_snapshot(as_snapshot(recorder, first=len(recorder.rows) // 2))

    (found,) = what_ifs(timeline, [EXPANDABLE])
    text = "\n".join(what_if_lines("x", [found]))

    assert found.after[0].peak_reserved < found.before.peak_reserved
    assert "expandable_segments:True" in text
    assert found.note in text
    assert what_if_view("x", [found])["devices"][0]["after"][0]["peak_reserved"] == found.after[0].peak_reserved


def test_segments_that_grew_tell_that_they_could() -> None:
    """Given a snapshot without settings, when pages were mapped, then it is replayed so, and as it was recorded."""
    recorder = busy_recorder(EXPANDABLE, SimpleDevice(100 * GIB), seed=3, operations=300)

    (found,) = what_ifs(timeline_of_snapshot(as_snapshot(recorder, first=0)), [])

    assert found.before.settings == "expandable_segments:True"
    assert found.note == ""


def test_a_recording_whose_segments_all_went_back_is_replayed() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=3, operations=300)
    while recorder.live:
        recorder.free(0)
    recorder.complete()
    recorder.empty_cache()

    (found,) = what_ifs(timeline_of_snapshot(as_snapshot(recorder, first=0)), [])

    assert recorder.segments() == []
    assert found.before.peak_reserved == found.recorded_reserved
    assert found.before.end_reserved == 0


def test_a_recording_that_begins_with_nothing_in_use_blames_what_it_does_not_tell() -> None:
    recorder = busy_recorder(parse_settings("roundup_power2_divisions:2"), SimpleDevice(100 * GIB), seed=3)

    (found,) = what_ifs(timeline_of_snapshot(as_snapshot(recorder, first=0)), [])

    assert found.note == (
        "The recording does not contain the full state of its allocator, such as the cache when it began or the pool"
        " of a released segment: compare the replays with each other."
    )


def test_of_several_devices_one_without_events_is_named() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=3, operations=100)
    snapshot = as_snapshot(recorder, first=0)
    others = [{**one, "device": 1} for one in snapshot["segments"]]  # type: ignore[attr-defined]
    both = {**snapshot, "segments": [*snapshot["segments"], *others]}  # type: ignore[misc]
    said: list[str] = []

    (found,) = what_ifs(timeline_of_snapshot(both), [], on_skip=said.append)

    assert found.device == "cuda:0"
    assert said == ["cuda:1: no events of this device are in it"]


def in_pieces(settings: AllocatorSettings, requested: int) -> dict[str, Any]:
    """A snapshot of 100 MiB, 30 of a segment of 60 in use, when a request fails; then the program goes on."""
    device = SimpleDevice(100 * MIB)
    recorder = Recorder(settings, device)
    recorder.malloc(60 * MIB)
    recorder.free(0)
    recorder.malloc(30 * MIB)
    recorder.malloc(requested)
    recorder.malloc(20 * MIB)
    written = as_snapshot(recorder, first=0)
    for entry in written["device_traces"][0]:  # type: ignore[index]
        if entry["action"] == "oom":
            entry["device_free"] = 100 * MIB - device.used
    return written


def test_a_request_that_failed_is_asked_for_again() -> None:
    """Given 70 MiB free in two pieces, when 70 failed, then they fit where a segment can grow, and not otherwise."""
    (found,) = what_ifs(
        timeline_of_snapshot(in_pieces(AllocatorSettings(), 70 * MIB)),
        [EXPANDABLE, parse_settings("max_split_size_mb:128")],
    )

    assert found.refused == (FailedRequest(requested=70 * MIB, room=100 * MIB),)
    assert found.before.served == (False,)
    assert [after.served for after in found.after] == [(True,), (False,)]
    assert found.after[0].peak_allocated == found.before.peak_allocated == 60 * MIB
    text = "\n".join(what_if_lines("x", [found]))
    assert "70.00 MiB failed when 100.00 MiB could be reserved in all; it fits under expandable_segments:True." in text
    assert what_if_view("x", [found])["devices"][0]["refused"] == ({"requested": 70 * MIB, "room": 100 * MIB},)


def test_a_request_for_more_than_there_is_fits_under_no_settings() -> None:
    (found,) = what_ifs(timeline_of_snapshot(in_pieces(AllocatorSettings(), 80 * MIB)), [EXPANDABLE])

    assert not found.after[0].served[0]
    assert "it does not fit under the other settings either" in "\n".join(what_if_lines("x", [found]))


def test_a_replay_that_runs_out_of_memory_says_so_and_is_no_saving() -> None:
    """Given too small a share of the memory, then its row ends there and is compared to nothing."""
    small = replace(gpu_named("a100-40gb"), name="a small one", total=1000 * MIB, context=100 * MIB)
    timeline = timeline_of_run(run(), AllocatorSettings())

    (found,) = what_ifs(timeline, [parse_settings("per_process_memory_fraction:0.3")], small)
    text = "\n".join(what_if_lines("x", [found]))

    assert found.before.failure == ""
    assert (found.before.replayed, found.gpu) == (1.0, "a small one")
    (after,) = found.after
    assert after.peak_reserved <= 300 * MIB
    assert 0 < after.replayed < 1
    assert "this process may reserve 300.00 MiB" in after.failure
    assert "not to compare" in text
    assert f"after {100 * after.replayed:.0f} % of the recording, where its row ends: {after.failure}." in text


def test_all_replays_are_on_the_same_device() -> None:
    # given a recording that reserves 500 MiB, on a device of 460 MiB
    timeline = timeline_of_run(run(), AllocatorSettings(), 460 * MIB)

    # when one of the settings is a share of the device's memory
    (found,) = what_ifs(timeline, [parse_settings("per_process_memory_fraction:0.99"), EXPANDABLE])

    # then the others have no more of it
    assert found.gpu == "a device of 460.00 MiB"
    for figures in (found.before, *found.after):
        assert figures.peak_reserved <= 460 * MIB
    assert "replayed on a device of 460.00 MiB" in "\n".join(what_if_lines("x", [found]))


def test_a_share_of_a_device_of_unknown_size_is_asked_for() -> None:
    timeline = timeline_of_snapshot(in_pieces(AllocatorSettings(), 70 * MIB))
    assert timeline.devices[0].total_bytes is None

    with pytest.raises(UsageError, match="add --gpu"):
        what_ifs(timeline, [parse_settings("per_process_memory_fraction:0.5")])


def test_what_has_no_allocator_cannot_be_replayed() -> None:
    with pytest.raises(UsageError, match="no segments of a caching allocator"):
        what_ifs(recording({"begin": 0, "bytes": 5}), [EXPANDABLE])


def test_what_if_a_setting_had_been_another() -> None:
    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(100 * GIB), seed=3)
    timeline = timeline_of_snapshot(as_snapshot(recorder, first=len(recorder.rows) // 2))

    same = replay_timeline(timeline, AllocatorSettings())
    other = replay_timeline(timeline, parse_settings("expandable_segments:True"))

    assert same.failure == other.failure == ""
    assert other.allocator.peak_reserved < same.allocator.peak_reserved
