"""Breakdowns of the peak of hand-built recordings."""

from __future__ import annotations

import numpy as np
import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.breakdown import OTHER, groups, max_by_code, peak_state, percent, shares
from tbmem.model.category import Phase
from tests.analysis.timelines import recording, training_step

ROWS = (
    {"bytes": 10, "begin": 0, "end": 5},
    {"bytes": 40, "begin": 1},
    {"bytes": 20, "begin": 2},
    {"bytes": 20, "begin": 3, "end": 6},
    {"bytes": 3, "begin": 4},
)
"""The peak is 93 bytes at event 4, or 100 with 7 that have no row; 63 bytes are alive at the end."""
UNLISTED = {"base_bytes": 7, "unlisted_bytes": 7}


def test_parts_beyond_the_limit_are_one() -> None:
    # given a code for each row; the last has none
    state = peak_state(recording(*ROWS, device=UNLISTED), 0)
    code = np.array([0, 1, 2, 3, -1])
    # when
    found = shares(state, code, "abcd".__getitem__, rest="(none)", limit=2)
    # then of the two that hold 20 bytes the first comes first, and the others are added up
    assert [(one.name, one.bytes, one.count, one.percent, one.end_bytes) for one in found] == [
        ("b", 40, 1, 40.0, 40),
        ("c", 20, 1, 20.0, 20),
        (OTHER, 40, 3, 40.0, 10),
    ]


def test_codes_of_one_name_are_merged_unless_they_are_stacks() -> None:
    # given
    state = peak_state(recording(*ROWS), 0)
    code = np.array([0, 1, 0, 2, 2])
    names = ("same", "other", "same").__getitem__
    # when
    merged = shares(state, code, names, rest="(none)")
    apart = shares(state, code, names, rest="(none)", frames=lambda number: (f"frame {number}",))
    # then
    assert {one.name: (one.bytes, one.count) for one in merged} == {"same": (53, 4), "other": (40, 1)}
    assert len(merged) == 2
    assert [(one.stack, one.bytes) for one in apart] == [(("frame 1",), 40), (("frame 0",), 30), (("frame 2",), 23)]


def test_the_most_of_a_code_may_be_at_another_time_than_the_peak() -> None:
    # given code 0 with 30 and 30 bytes one after the other, and code 1 with 20 and 25 at once;
    # a free and an allocation of one event do not overlap
    rows = [
        {"bytes": 30, "begin": 0, "end": 2},
        {"bytes": 30, "begin": 2, "end": 3},
        {"bytes": 20, "begin": 4, "end": 7},
        {"bytes": 25, "begin": 5, "end": 6},
        {"bytes": 99, "begin": 8},
    ]
    # when
    most = max_by_code(recording(*rows), 0, np.array([0, 0, 1, 1, -1]))
    # then
    assert most.tolist() == [30, 45]


def test_groups_agree_in_every_column() -> None:
    # given
    columns = np.array([[1, 1, 2, 1, 2], [5, 6, 5, 5, 5]])
    # when
    first, group = groups(*columns)
    # then they are those that numpy finds for the pairs
    _, expected = np.unique(columns, axis=1, return_inverse=True)
    assert group.tolist() == expected.reshape(-1).tolist()
    assert [group[row] for row in first] == [0, 1, 2]


def test_nothing_of_nothing_is_no_percent() -> None:
    assert (percent(1, 8), percent(0, 0)) == (12.5, 0.0)


def test_breakdowns_add_up_to_the_peak() -> None:
    timeline = recording(*training_step(0, 0), *training_step(1, 10))
    device = analyze(timeline).devices[0]

    for parts in (device.by_category, device.by_phase, device.by_module, device.by_line, device.by_operator):
        assert sum(share.bytes for share in parts) == device.peak.bytes
        assert sum(share.percent for share in parts) == pytest.approx(100, abs=0.01)
    assert sum(share.bytes for share in device.by_stack) == device.peak.bytes
    assert device.modules.bytes == device.peak.bytes
    assert {share.name for share in device.by_module} == {"(no module)", "Net_*.Linear_*"}
    assert device.by_line[0].name == "me/train.py:10 loss_of"


def test_bytes_without_a_row_are_unknown_and_counted() -> None:
    device = {"base_bytes": 500, "unlisted_bytes": 500}
    analysis = analyze(recording({"bytes": 8, "begin": 0, "phase": Phase.FORWARD}, device=device))

    found = {share.name: (share.bytes, share.count) for share in analysis.devices[0].by_category}
    assert found == {"UNKNOWN": (500, 0), "ACTIVATION": (8, 1)}
