"""Recordings under other settings of the allocator."""

from __future__ import annotations

import pytest

from tbmem.analysis.allocator.device import SimpleDevice
from tbmem.analysis.allocator.settings import AllocatorSettings, parse_settings
from tbmem.analysis.run_timeline import timeline_of_run
from tbmem.analysis.what_if import DEFAULTS, what_ifs
from tbmem.errors import UsageError
from tbmem.present.what_if import what_if_lines, what_if_view
from tbmem.sources.snapshot import timeline_of_snapshot
from tbmem.units import GIB, MIB
from tests.analysis.allocator.recording import busy_recorder
from tests.analysis.allocator.test_recorded import as_snapshot
from tests.analysis.test_estimate import run
from tests.analysis.timelines import recording

EXPANDABLE = parse_settings("expandable_segments:True")


def test_an_estimate_before_and_after() -> None:
    timeline = timeline_of_run(run(), AllocatorSettings())

    (found,) = what_ifs(timeline, [EXPANDABLE])
    (after,) = found.after

    assert found.recorded_reserved == found.before.peak_reserved == 500 * MIB
    assert found.before.settings == DEFAULTS
    assert after.settings == "expandable_segments:True"
    # the last two could go back: free pages of 20 MiB are cache, not pieces
    assert (after.peak_reserved, after.end_cached, after.end_fragmented) == (500 * MIB, 200 * MIB, 0)
    assert found.before.wasted == pytest.approx(0.1)
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


def test_what_has_no_allocator_cannot_be_replayed() -> None:
    with pytest.raises(UsageError, match="no segments of a caching allocator"):
        what_ifs(recording({"begin": 0, "bytes": 5}), [EXPANDABLE])
