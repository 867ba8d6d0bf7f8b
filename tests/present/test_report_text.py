"""Texts whose figures are those of the JSON."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tbmem.analysis.comparison import odd_one
from tbmem.analysis.report import Fragmentation
from tbmem.offline.study import analyze
from tbmem.present.analysis import analysis_screen, failed_sentence
from tbmem.present.findings_text import comparison_text, findings_text
from tbmem.present.report_text import report_text
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
    assert _figure(text, "  of it in gaps: fragmented") == data["fragmentation"]["free_in_gaps_bytes"]
    for name, size in data["by_category"].items():
        assert _figure(text, name) == size
    assert f"efficiency: {data['efficiency_percent']:.3f} %   {data['grade']}" in text
    # and the fifty largest, in order
    top = re.findall(r"^ *(\d+)\. .*?\(\s*([\d,]+) B\)", text, re.MULTILINE)
    assert [int(size.replace(",", "")) for _, size in top] == [one["bytes"] for one in data["top"]]
    assert [int(number) for number, _ in top] == list(range(1, 51))
    for section in ("FRAGMENTATION", "RECOMMENDATIONS", "SUSPECTED LEAKS", "NOT KNOWN"):
        assert f"\n{section}\n" in text


def test_the_readme_says_it_in_words(snapshot_path: Path) -> None:
    text = findings_text(analyze(snapshot_path), "today")

    assert "GPU 0 needed 4.03 MiB at its peak" in text
    assert "were allocated (excellent)" in text
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


def test_a_request_that_failed_is_set_against_what_was_free() -> None:
    free = Fragmentation(
        cached_bytes=100,
        largest_free_block_bytes=40,
        failing_request_bytes=50,
        failing_request_fits_free_sum=True,
    )
    device = replace(analyze(recording()).main, ooms=2, fragmentation=free)

    assert failed_sentence(device) == (
        "2 requests failed, out of memory, the last of 50 B: no more than the 100 B that are free in all, where the"
        " largest free block has 40 B"
    )


def test_the_readme_of_several(tmp_path: Path) -> None:
    for rank in range(3):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[(9 if rank == 2 else 1) << 20])
    analyses = [analyze(tmp_path / f"rank{rank}.pickle") for rank in range(3)]

    text = comparison_text(analyses, odd_one(analyses))

    assert "rank2 is the odd one" in text
    assert "[**rank2**](rank2/README.md)" in text
    assert "None of them" not in text
