"""Pages of several recordings, and of two runs: the tab's Compare view with all it asks for inside."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import odd_one
from tbmem.model.files import MONITOR_LOG
from tbmem.offline.analyze import read_pair
from tbmem.offline.reports.pages import comparison_html, subject_of, write_pair_html
from tbmem.present.views.comparison import Side, side_of
from tests.analysis.timelines import recording
from tests.offline.snapshots import write_snapshot
from tests.present.pages import Look, assert_it_is_offline


def compared(name: str, size: int) -> tuple[Analysis, Side]:
    row = {"bytes": size, "begin": 0, "module": "model.head", "stack": (("/home/me/train.py", 3, "step"),)}
    analysis = analyze(recording(row), name=name, path=f"/a/{name}.pickle")
    return analysis, side_of(subject_of(analysis))


def answers_of(page: str) -> dict[str, Any]:
    look = Look(page)
    assert_it_is_offline(look)
    (answers,) = look.charts
    return answers


def test_several_side_by_side() -> None:
    # given three ranks, one of which needs more
    sizes = {"rank0": 1000, "rank1": 1000, "rank2": 9000}
    found = [compared(name, size) for name, size in sizes.items()]

    answers = answers_of(comparison_html(found, odd_one([analysis for analysis, _ in found]), "today"))

    # then the page has one view, which has them all
    assert answers["views"] == ["compare"]
    assert [one["run"] for one in answers["index"]["runs"]] == list(sizes)
    sides = answers["sides"]
    assert (sides["name"], sides["peak"]) == (list(sizes), list(sizes.values()))
    assert (sides["odd"], sides["link"][1]) == ([False, False, True], "rank1/report.html")
    assert sides["message"].startswith("rank2 differs from the others")
    assert [sum(column) for column in zip(*sides["bytes"], strict=True)] == list(sizes.values())
    assert [max(curve) for curve in sides["curves"]["bytes"]] == list(sizes.values())
    # and what grew between any two: by category, module, line and stack
    for before in sizes:
        for after in sizes.keys() - {before}:
            assert answers[f"sides?after={after}&before={before}"] == "sides"
            (device,) = answers[f"compare?after={after}&before={before}"]["recordings"]
            change = sizes[after] - sizes[before]
            assert device["totals"]["change"][0] == change
            for part in ("by_category", "by_module", "by_line", "by_stack"):
                assert sum(device[part]["change"]) == change
            assert all("train.py:3" in frames[0] for frames in device["by_stack"]["frames"])


def test_of_many_each_with_the_first_the_last_and_the_odd_one() -> None:
    names = [f"rank{number}" for number in range(9)]
    found = [compared(name, 9000 if name == "rank4" else 1000) for name in names]

    answers = answers_of(comparison_html(found, odd_one([analysis for analysis, _ in found])))

    pairs = {tuple(re.findall(r"rank\d", key)) for key in answers if key.startswith("compare?")}
    for name in names:
        for telling in {"rank0", "rank4", "rank8"} - {name}:
            assert {(name, telling), (telling, name)} <= pairs
    assert ("rank1", "rank2") not in pairs


def test_two_recordings_as_one_file(tmp_path: Path) -> None:
    for run, size in (("a", 1 << 20), ("b", 3 << 20)):
        (tmp_path / run).mkdir()
        write_snapshot(tmp_path / run / "x.pickle", sizes=[size])

    path = write_pair_html(read_pair(tmp_path / "a", tmp_path / "b"), tmp_path / "c.html")

    answers = answers_of(path.read_text(encoding="utf-8"))
    assert answers["compare?after=b/x&before=a/x"]["grown_percent"] == pytest.approx(200)
    assert answers["compare?after=a/x&before=b/x"]["grown_percent"] == pytest.approx(-200 / 3)
    assert answers["sides"]["peak"] == [1 << 20, 3 << 20]


def test_a_recording_against_itself(tmp_path: Path) -> None:
    source = write_snapshot(tmp_path / "x.pickle", sizes=[1000])

    path = write_pair_html(read_pair(source, source), tmp_path / "c.html")

    names = [one["run"] for one in answers_of(path.read_text(encoding="utf-8"))["index"]["runs"]]
    assert names == ["x", "x again"]


def test_runs_without_recordings(tmp_path: Path) -> None:
    for run, peak in (("a", 1000), ("b", 3000)):
        log = tmp_path / run / MONITOR_LOG
        log.parent.mkdir(parents=True)
        header = {"type": "header", "rank": 0, "started": 1.0}
        sample = {"type": "samples", "step": 1, "time": 2.0, "device": "cuda:0", "first_step": 1, "count": 1}
        log.write_text("".join(f"{json.dumps(one)}\n" for one in (header, {**sample, "allocated": peak})))

    path = write_pair_html(read_pair(tmp_path / "a", tmp_path / "b"), tmp_path / "c.html")

    answers = answers_of(path.read_text(encoding="utf-8"))
    assert answers["sides"]["run"] == []
    (device,) = answers["compare?after=b&before=a"]["runs"]
    assert device["totals"]["change"][0] == 2000
