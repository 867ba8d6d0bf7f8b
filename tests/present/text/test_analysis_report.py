"""Texts whose figures are those of the JSON."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from tbmem.analysis.recordings.fragmentation import pieces_of
from tbmem.analysis.runs.comparison import odd_one
from tbmem.model.category import word_of
from tbmem.offline.analyze import analyze
from tbmem.offline.reports.pages import subject_of
from tbmem.present.text.analysis_report import report_text
from tbmem.present.text.analysis_tables import analysis_screen
from tbmem.present.text.readme import comparison_text, findings_text
from tbmem.present.views.segments import segments_view
from tests.analysis.timelines import recording
from tests.offline.snapshots import write_snapshot


@pytest.fixture
def snapshot_path(tmp_path: Path) -> Path:
    return write_snapshot(tmp_path / "rank0.pickle", sizes=[3 << 20, 1000, *([512] * 60)], freed=[1 << 20])


def _figure(text: str, word: str) -> int:
    """The bytes in brackets behind a word at the beginning of a line."""
    found = re.search(rf"^{re.escape(word)} .*?\(\s*([\d,]+) B\)", text, re.MULTILINE)
    assert found, word
    return int(found[1].replace(",", ""))


def test_figures_equal_those_of_the_json(snapshot_path: Path) -> None:
    analysis = analyze(snapshot_path)
    text, data = report_text(analysis, "today"), analysis.to_dict()["devices"]["0"]

    assert _figure(text, "peak") == data["peak_bytes"]
    assert _figure(text, "reserved at the end") == data["reserved_bytes"]
    assert _figure(text, "allocated at the end") == data["allocated_bytes"]
    assert _figure(text, "requested at the end") == data["requested_bytes"]
    assert _figure(text, "  fragmented: between used blocks") == data["fragmentation"]["fragmented_bytes"]
    for name, size in data["by_category"].items():
        assert _figure(text, word_of(name)) == size
    assert f"efficiency at the peak: {data['efficiency_percent']:.3f} %   {data['grade']}" in text
    # and the fifty largest, in order
    top = re.findall(r"^ *(\d+)\. .*?\(\s*([\d,]+) B\)", text, re.MULTILINE)
    assert [int(size.replace(",", "")) for _, size in top] == [one["bytes"] for one in data["top"]]
    assert [int(number) for number, _ in top] == list(range(1, 51))
    for section in ("FRAGMENTATION", "RECOMMENDATIONS", "SUSPECTED LEAKS", "NOT KNOWN"):
        assert f"\n{section}\n" in text


def test_the_readme_says_it_in_words(snapshot_path: Path) -> None:
    text = findings_text(analyze(snapshot_path), "today")

    assert "GPU 0 needed 4.03 MiB at its peak" in text
    assert "were in use at the peak (excellent)" in text
    assert "| Attention | 4.03 MiB |" in text
    assert "(memory_timeline.png)" in text


def test_names_are_shown_as_they_are() -> None:
    # given a function that rich would take for a style's end, and Markdown for the end of code
    rows = [{"bytes": 64, "begin": 0, "stack": (("a[/b].py", 3, "f`[y]`"),)}]
    analysis = analyze(recording(*rows))

    shown = io.StringIO()
    Console(width=200, file=shown).print(analysis_screen(analysis))

    assert "a[/b].py:3 f`[y]`" in shown.getvalue()
    assert "`` a[/b].py:3 f`[y]` ``" in findings_text(analysis)


def test_a_recording_without_history_is_not_said_to_be_in_order(corpus: Path) -> None:
    # given the state when memory ran out, without what led to it
    analysis = analyze(corpus / "snapshots/Yiyi-philosophy__oom_snapshot__fc31f1e.pickle")
    # when
    text = findings_text(analysis)
    # then
    assert "- Parameter memory is 11.03 GiB, 100 % of the peak." in text
    assert "in order" not in text
    assert "- GPU 0: no history was recorded" in text


def test_the_readme_of_several(tmp_path: Path) -> None:
    for rank in range(3):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[(9 if rank == 2 else 1) << 20])
    analyses = [analyze(tmp_path / f"rank{rank}.pickle") for rank in range(3)]

    text = comparison_text(analyses, odd_one(analyses))

    assert "rank2 differs from the others" in text
    assert "[**rank2**](rank2/README.md)" in text
    assert "None of them" not in text


def test_cached_and_fragmented_bytes_are_the_same_on_every_screen(corpus: Path) -> None:
    # given a real snapshot after a step, of which a peak used more than the step's end
    (path,) = (corpus / "snapshots").glob("*snapshot_100__*.pickle")
    analysis = analyze(path)
    device = analysis.main
    free = device.fragmentation

    # when every screen tells of it
    shown = io.StringIO()
    Console(width=200, file=shown).print(analysis_screen(analysis))
    answer = segments_view(subject_of(analysis))
    parts = dict(zip(answer["parts"]["name"], answer["parts"]["bytes"], strict=True))

    # then cached and fragmented bytes are two parts of the free ones, which no two of them tell in another way
    assert (free.free_bytes, free.cached_bytes, free.fragmented_bytes) == (362_672_640, 188_743_680, 173_928_960)
    assert "unused then: free 345.87 MiB · cached 180.00 MiB · fragmented 165.87 MiB" in shown.getvalue()
    assert "345.87 MiB were free: 180.00 MiB cached in whole segments, 165.87 MiB fragmented" in findings_text(analysis)
    text = report_text(analysis)
    assert _figure(text, "free at the end") == free.free_bytes
    assert _figure(text, "  cached: in whole segments and pages") == free.cached_bytes
    assert _figure(text, "  fragmented: between used blocks") == free.fragmented_bytes
    assert parts["cached: free in whole segments"] == sum(answer["segments"]["cached"]) == free.cached_bytes
    assert parts["fragmented: free in gaps"] == sum(answer["segments"]["fragmented"]) == free.fragmented_bytes
    assert answer["fragmentation"] == analysis.to_dict()["devices"]["0"]["fragmentation"]
    assert pieces_of(analysis.timeline, 0).fragmented == free.fragmented_bytes
    # and the end of a step is not taken for waste
    assert (answer["efficiency_percent"], answer["grade"]) == (device.efficiency_percent, device.grade)
    assert device.efficiency_percent == pytest.approx(86.8, abs=0.1)
