"""Out-of-memory errors and leaks as stories, from findings as logs hold them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tbmem.present.views.stories import source_line, story_of, story_of_death
from tests.conftest import GIB, MakeSample

MIB = 1 << 20
OOM: dict[str, Any] = {
    "requested_bytes": 5 * GIB // 4,
    "free_bytes": 200 * MIB,
    "device_free_bytes": 200 * MIB,
    "device_total_bytes": 15 * GIB,
    "line": "train.py:7 in train()",
    "limits": [{"name": "the device", "total": 15 * GIB, "free": 200 * MIB}],
    "pieces": {
        "reserved": 14 * GIB,
        "active": 13 * GIB,
        "cached": 56 * MIB,
        "fragmented": 968 * MIB,
        "largest_free": MIB,
    },
    "reasons": [
        {"cause": "fragmentation", "text": "1.00 GiB were reserved and free", "enough": True, "advice": "expandable"},
        {"cause": "other_processes", "text": "others hold 800 MiB", "enough": False, "advice": "nvidia-smi"},
    ],
    "holders": [
        {"name": f"h{number}", "bytes": (4 - number) * GIB, "count": 2, "lines": ["a.py:1 f"]} for number in range(4)
    ],
    "seen_bytes": 10 * GIB,
    "files": ["x.oom.snapshot.pickle", "x.oom.txt"],
}


def _finding(kind: FindingKind, evidence: dict[str, Any], advice: str = "") -> Finding:
    return Finding(
        kind=kind,
        severity=Severity.CRITICAL,
        device="cuda:0",
        first_step=2,
        last_step=31,
        message="",
        evidence=evidence,
        advice=advice,
    )


def test_an_out_of_memory_error_says_what_was_requested_and_why_it_did_not_fit() -> None:
    # when
    story = story_of(_finding(FindingKind.OOM, OOM))
    # then
    assert story is not None
    assert story["title"] == "Out of memory in step 31"
    assert [tuple(fact) for fact in story["facts"]] == [
        ("requested", "1.25 GiB on GPU 0", "train.py:7 in train()"),
        ("free", "200.00 MiB of 15.00 GiB (the device)", ""),
        ("in the allocator", "in use 13.00 GiB, largest gap 1.00 MiB, fragmented 968.00 MiB, cached 56.00 MiB", ""),
        ("outside of it", "824.00 MiB (CUDA's context, other processes)", ""),
    ]
    assert story["why"] == [
        "fragmentation: 1.00 GiB were reserved and free; without it the request would have fitted",
        "other processes: others hold 800 MiB",
    ]
    assert story["advice"] == ["expandable", "nvidia-smi"]
    assert [holder["name"] for holder in story["holders"]] == ["h0", "h1", "h2"]
    assert story["holders"][0] == {"name": "h0", "bytes": 4 * GIB, "count": 2, "percent": 40.0, "line": "a.py:1 f"}
    # the cache is given back before a request fails
    assert story["missing"] == 1280 * MIB - 256 * MIB
    assert story["snapshot"] == "x.oom.snapshot.pickle"


def test_a_leak_says_who_holds_how_much_where_and_how_long_there_is_room() -> None:
    # given
    line = {"file": "/a/train.py", "line": 6, "text": "kept.append(y)"}
    evidence = {
        **{
            "holder": "list 'kept'",
            "line": line,
            "bytes_per_step": 32 * MIB,
            "share": 1.0,
            "cause": "tensors are kept",
        },
        **{"steps_left": 137, "seconds_left": 90.0},
    }
    # when
    story = story_of(_finding(FindingKind.LEAK, evidence, "keep numbers"))
    # then
    assert story is not None
    assert [tuple(fact) for fact in story["facts"]] == [
        ("held by", "list 'kept'", ""),
        ("line", "", "train.py:6  kept.append(y)"),
        ("growth", "+32.00 MiB per step since step 2; the holder explains 100 % of it", ""),
        ("out of memory in", "about 137 steps (1 min 30 s at this speed) after step 31", ""),
    ]
    assert (story["why"], story["advice"], story["missing"]) == (["tensors are kept"], ["keep numbers"], None)


def test_the_end_is_that_of_the_resident_memory_where_it_grows_faster() -> None:
    evidence = {"bytes_per_step": MIB, "resident_bytes_per_step": 2 * MIB, "steps_left": 137}

    story = story_of(_finding(FindingKind.LEAK, evidence))

    assert story is not None
    left = "about 137 steps after step 31, as the resident memory grows by 2.00 MiB per step"
    assert tuple(story["facts"][-1]) == ("out of memory in", left, "")


def test_a_holders_share_is_of_what_is_alive_where_more_is_resident() -> None:
    evidence = {"bytes_per_step": 20 * MIB, "alive_bytes_per_step": 32 * 1024, "share": 0.73}

    story = story_of(_finding(FindingKind.LEAK, evidence))

    assert story is not None
    growth = "+20.00 MiB per step since step 2, of which +32.00 KiB is alive; the holder explains 73 % of that"
    assert tuple(story["facts"][0]) == ("growth", growth, "")


def test_other_findings_have_no_story() -> None:
    assert story_of(_finding(FindingKind.SPIKE, {})) is None


@pytest.mark.parametrize("kind", [FindingKind.OOM, FindingKind.LEAK])
@pytest.mark.parametrize("wrong", [None, "x", 3, float("nan"), [3], {"a": 1}])
def test_a_damaged_log_gives_a_shorter_story(kind: FindingKind, wrong: object) -> None:
    # given
    evidence = dict.fromkeys(
        [
            *OOM,
            "holder",
            "bytes_per_step",
            "steps_left",
            "seconds_left",
            "share",
            "alive_bytes_per_step",
            "resident_bytes_per_step",
        ],
        wrong,
    )
    # when
    story = story_of(_finding(kind, evidence))
    # then
    assert story is not None
    assert story["kind"] == kind.value


def test_the_line_of_a_finding() -> None:
    assert source_line({"file": "C:\\me\\train.py", "line": 41, "text": "x"}) == "train.py:41  x"
    assert source_line("?") == ""


@pytest.mark.parametrize(
    ("device", "channel", "title", "whose"),
    [
        ("cuda:0", "heap", "Leak on the host since step 2", "of the process on the host"),
        ("cpu", "heap", "Leak since step 2", None),
        (
            "cpu",
            "workers",
            "Leak in child processes since step 2",
            "of child processes, such as DataLoader workers",
        ),
        ("cuda:0", "allocated", "Leak since step 2", None),
    ],
)
def test_a_leak_says_whose_memory_grows(device: str, channel: str, title: str, whose: str | None) -> None:
    story = story_of(replace(_finding(FindingKind.LEAK, {"channel": channel}), device=device))

    assert story is not None
    assert story["title"] == title
    assert {name: text for name, text, _ in story["facts"]}.get("memory") == whose


def test_a_rank_that_was_killed_says_where_to_look(make_sample: MakeSample) -> None:
    state = RankState()
    state.add(MonitorLog(rows=[SampleRow(7, 1, None, None, make_sample(7, 1))]))

    story = story_of_death(state)

    assert (story["kind"], story["title"]) == ("died", "Killed or crashed after step 7, the last in its log")
    assert story["device"] == "cuda:0"
    assert "dmesg" in story["advice"][0]
