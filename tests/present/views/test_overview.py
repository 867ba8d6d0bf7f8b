"""Cards, findings and next steps of a run, and its ranks side by side."""

from __future__ import annotations

import pytest

from tbmem.analysis.runs.run_status import RankState
from tbmem.model.category import Category
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.overview import finding_item, index_view, overview_of, rank_columns
from tests.conftest import GIB, MakeSample


def _finding(kind: FindingKind, severity: Severity, last: int, **more: object) -> Finding:
    place = {"device": "cuda:0", "first_step": 1, "last_step": last, "message": f"{kind.value} {last}"}
    return Finding(kind=kind, severity=severity, **{**place, **more})  # type: ignore[arg-type]


def _state(make_sample: MakeSample, rank: int, peak: float, **more: object) -> RankState:
    state = RankState()
    rows = [SampleRow(step, 1, None, None, make_sample(step, 1, peak, rank=rank)) for step in range(1, 30)]
    header = {"rank": rank, "started": 1000.0, "host": f"node{rank}"}
    state.add(MonitorLog(headers=[header], rows=rows, **more))  # type: ignore[arg-type]
    return state


def test_findings_are_ordered_by_severity_and_then_the_latest(make_sample: MakeSample) -> None:
    findings = [
        _finding(FindingKind.SPIKE, Severity.WARNING, 5, advice="look at it"),
        _finding(FindingKind.SPIKE, Severity.WARNING, 8, advice="look at it"),
        _finding(FindingKind.OOM, Severity.CRITICAL, 3, advice="make it smaller"),
    ]
    run = LoggedRun("a", [_state(make_sample, 0, 2, findings=findings)], findings=findings)

    view = overview_of(run, now=1001.0)

    assert [one["message"] for one in view["findings"]][0] == "oom 3"
    assert [one["severity"] for one in view["findings"]] == sorted(one["severity"] for one in view["findings"])
    # and each advice stands once
    assert view["next_steps"][:2] == ["make it smaller", "look at it"]


def test_after_an_out_of_memory_error_its_own_advice_counts(make_sample: MakeSample) -> None:
    # given a GPU that came near its capacity and then failed, and another that only came near
    findings = [
        _finding(FindingKind.NEAR_CAPACITY, Severity.WARNING, 5, advice="reduce memory"),
        _finding(FindingKind.NEAR_CAPACITY, Severity.WARNING, 5, advice="reduce memory of the other", device="cuda:1"),
        _finding(FindingKind.OOM, Severity.CRITICAL, 8, advice="set expandable_segments:True"),
    ]

    view = overview_of(LoggedRun("a", [_state(make_sample, 0, 2)], findings=findings), now=1001.0)

    assert view["next_steps"][:2] == ["set expandable_segments:True", "reduce memory of the other"]
    assert "reduce memory" not in view["next_steps"]


@pytest.mark.parametrize(("peak", "warned"), [(60.0, False), (79.0, True)])
def test_little_headroom_is_a_next_step(peak: float, warned: bool, make_sample: MakeSample) -> None:
    # given a device of 80 GiB
    view = overview_of(LoggedRun("a", [_state(make_sample, 0, peak)]), now=1001.0)

    (card,) = view["cards"]
    assert (card["peak"], card["capacity"], card["headroom"]) == (peak * GIB, 80 * GIB, (80 - peak) * GIB)
    assert ("GPU 0: only 1.00 GiB were free at the peak. See Peak." in view["next_steps"]) is warned


def test_a_run_without_a_log_says_so() -> None:
    view = overview_of(LoggedRun("a", recordings=["x.pickle"]), now=1001.0)

    assert view["cards"] == []
    assert view["empty"]["title"] == "This run has recordings, but no live log"
    assert (view["seconds"], view["host"]) == (None, "")


def test_the_rank_with_another_peak_is_named(make_sample: MakeSample) -> None:
    peaks = (2.0, 2.0, 6.0, 2.0)
    run = LoggedRun("a", [_state(make_sample, rank, peak) for rank, peak in enumerate(peaks)])

    columns, message = rank_columns(run)

    assert columns["rank"] == [0, 1, 2, 3]
    assert columns["odd"] == [False, False, True, False]
    assert columns["host"] == ["node0", "node1", "node2", "node3"]
    assert message == "Rank 2 (GPU 0) differs from the others: a peak of 6.00 GiB, where the median is 2.00 GiB."
    assert rank_columns(LoggedRun("a", [_state(make_sample, rank, 2) for rank in range(4)]))[1] is None


def test_the_line_of_a_finding() -> None:
    line = {"file": "C:\\me\\train.py", "line": 41, "text": "losses.append(loss)"}
    leak = _finding(FindingKind.LEAK, Severity.CRITICAL, 3, evidence={"line": line, "known_by": "seen"})

    item = finding_item("a", leak, x=3.0)

    assert (item["line"], item["known_by"]) == ("train.py:41  losses.append(loss)", "seen")
    assert (item["run"], item["x"], item["quiet"]) == ("a", 3.0, False)
    assert finding_item("a", _finding(FindingKind.LEAK, Severity.INFO, 3, evidence={"line": "?"}))["line"] == ""


def test_the_index_colours_every_category() -> None:
    index = index_view([], version="1", source="report")

    assert index["colours"]["categories"].keys() == {category.name for category in Category}
    assert (index["runs"], index["empty"], index["written"]) == ([], None, None)
