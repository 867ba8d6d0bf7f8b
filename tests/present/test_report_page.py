"""Pages that need nothing but themselves."""

from __future__ import annotations

import json

from tbmem.analysis.analyzer import analyze
from tbmem.analysis.comparison import compare_analyses, odd_one
from tbmem.analysis.layers import layers_of
from tbmem.analysis.run_story import story_of
from tbmem.model.category import Category
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog, SampleRow
from tbmem.present.comparison_page import Side, comparison_page
from tbmem.present.report_page import report_page
from tbmem.present.run_page import run_lines, run_page, run_text
from tests.analysis.timelines import book, recording, training_step
from tests.conftest import GIB, MakeSample
from tests.present.pages import Look, assert_it_is_offline

EVIL = "</script><img src=http://example.org/x>"


def test_the_page_of_a_training() -> None:
    notes = book((-1, 7, 800, Category.PARAMETER, "net.0.weight"))
    analysis = analyze(recording(*training_step(0, 0), *training_step(1, 10)), book=notes, name="iter1_rank0")

    look = Look(report_page(analysis, "today"))

    assert_it_is_offline(look)
    assert "Memory of iter1_rank0" in look.words
    timeline = look.charts[0]
    names = [trace["name"] for trace in timeline["data"]]
    assert names[0] == "Parameter"
    # and the stack adds up to the peak
    stacked = [trace["y"] for trace in timeline["data"] if "stackgroup" in trace]
    assert round(max(map(sum, zip(*stacked, strict=True))) * 1024) == analysis.main.peak.bytes
    # and two ways to lay it out
    buttons = timeline["layout"]["updatemenus"][0]["buttons"]
    assert [button["label"] for button in buttons] == ["by time", "by event"]
    categories = next(table for table in look.tables if table[0][0] == "category")
    assert len(categories) == 1 + len(analysis.main.by_category)


def test_names_are_no_html() -> None:
    row = {"bytes": 1000, "begin": 0, "operator": EVIL, "module": EVIL, "stack": ((f"/a/{EVIL}.py", 3, EVIL),)}
    analysis = analyze(recording(row), name=EVIL, path=EVIL)

    page = report_page(analysis, EVIL)

    assert_it_is_offline(Look(page))
    assert "<img" not in page.partition("<script>")[0]


def test_a_recording_in_which_nothing_happened() -> None:
    look = Look(report_page(analyze(recording({"bytes": 100, "address": 1}))))

    assert "Next to nothing was recorded" in look.words
    assert "all of it before the recording began" in look.words


def test_several_side_by_side() -> None:
    sizes = {"rank0": 1000, "rank1": 1000, "rank2": 9000}
    analyses = [analyze(recording({"bytes": size, "begin": 0}), name=name) for name, size in sizes.items()]
    sides = [Side(one, layers_of(one, 0), f"{one.name}/report.html") for one in analyses]
    odd = odd_one(analyses)

    look = Look(comparison_page(sides, odd, compare_analyses(analyses[0], analyses[-1])))

    assert_it_is_offline(look)
    assert "rank2 is the odd one" in look.words
    assert "rank1/report.html" in look.addresses
    assert [trace["name"] for trace in look.charts[1]["data"]] == list(sizes)
    bars = look.charts[0]["data"][0]
    assert bars["y"] == list(sizes)


def test_the_page_of_a_run(make_sample: MakeSample) -> None:
    # given a run with a leak, a window and a device that is nearly full
    rows = [SampleRow(step, 1, step * GIB, step * GIB, make_sample(step, step, step + 0.5)) for step in range(1, 71)]
    leak = Finding(
        kind=FindingKind.LEAK,
        severity=Severity.CRITICAL,
        device="cuda:0",
        first_step=1,
        last_step=40,
        message="memory grows <b>",
        evidence={"bytes_per_step": GIB},
        advice="store loss.item()",
    )
    window = {"type": "window", "number": 1, "first_step": 4, "last_step": 6, "complete": True, "files": ["a.gz"]}
    log = MonitorLog(headers=[{"rank": 0, "started": 999.0}], rows=rows, findings=[leak], windows=[window])
    story = story_of([log], "a_run", "runs/a_run")

    look = Look(run_page(story, (), "today"))

    assert_it_is_offline(look)
    chart = look.charts[0]
    marks = next(trace for trace in chart["data"] if trace["name"] == "findings")
    assert (marks["x"], marks["y"]) == ([40], [40.5])
    assert [shape["label"]["text"] for shape in chart["layout"]["shapes"]] == ["window 1", "capacity"]
    assert "memory grows <b>" in look.words
    assert "was cut off" in look.words
    # and the same in short
    assert any("LEAK" in line and "step 40" in line for line in run_lines(story, ()))
    assert "store loss.item()" in run_text(story, ())
    assert json.dumps(story.to_dict())
