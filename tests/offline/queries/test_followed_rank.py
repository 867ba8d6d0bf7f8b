"""A log that is read on piece by piece gives the same as one that is read at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tbmem.model.monitor_log import to_line
from tbmem.model.sample_row import SampleRow
from tbmem.offline.queries import followed_rank
from tbmem.offline.queries.followed_rank import FollowedRank
from tests.conftest import MakeSample
from tests.offline.queries.folder import GIB, HEADER, LEAK, Folder


def _described(log: FollowedRank) -> tuple[object, ...]:
    state = log.state
    (device,) = state.devices
    tracks = device.peak, device.last_level, device.growth_per_step(), device.judged
    return state.header, state.step, state.end, [one.message for one in state.findings], tracks


def test_piece_by_piece_and_at_once(folder: Folder, tmp_path: Path) -> None:
    whole = folder.log("a", steps=60, finding=LEAK).read_bytes()
    path = tmp_path / "monitor.jsonl"
    path.write_bytes(b"")
    log = FollowedRank(path)

    for begin in range(0, len(whole), 999):
        with path.open("ab") as file:
            file.write(whole[begin : begin + 999])
        series = log.read()

    at_once = FollowedRank(path)
    assert [one.columns["step"].tolist() for one in series] == [one.columns["step"].tolist() for one in at_once.read()]
    assert _described(log) == _described(at_once)
    assert len(log.rest.findings) == 1


def test_a_run_that_is_resumed_begins_anew(folder: Folder) -> None:
    path = folder.log("a", steps=9)
    log = FollowedRank(path)
    log.read()
    lines = path.read_text().splitlines(keepends=True)

    with path.open("a") as file:
        file.writelines([json.dumps({**HEADER, "host": "node8"}) + "\n", *lines[4:7]])
    (series,) = log.read()

    assert series.columns["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert (log.state.header["host"], log.state.end, log.state.step) == ("node8", None, 6)


def test_a_long_log_is_sampled_for_the_state(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_rank, "_STATE_ROWS", 40)
    log = FollowedRank(folder.log("a", steps=500, peak=2 * GIB))

    log.read()

    (device,) = log.state.devices
    assert device.judged < 200
    assert (log.state.step, device.peak.bytes if device.peak else None) == (500, 2 * GIB)


@pytest.mark.parametrize("most", [40, 10_000])
def test_what_came_after_the_last_step_counts_in_the_peak_and_is_no_step(
    most: int, folder: Folder, monkeypatch: pytest.MonkeyPatch, make_sample: MakeSample
) -> None:
    # given 500 steps, and 9 GiB after them
    monkeypatch.setattr(followed_rank, "_STATE_ROWS", most)
    path = folder.log("a", steps=500, peak=2 * GIB)
    *before, end = path.read_text().splitlines()
    after = to_line(SampleRow.unfinished(make_sample(501, 1.0, 9.0)))
    path.write_text("\n".join([*before, after, end, ""]))
    log = FollowedRank(path)
    # when
    log.read()
    # then
    (device,) = log.state.devices
    assert device.peak is not None
    assert (device.peak.bytes, device.peak.when) == (9 * GIB, "after step 500")
    assert log.state.step == 500
