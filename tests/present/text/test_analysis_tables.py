"""Analyses and comparisons on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType

from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Fragmentation, PeakMoment, Share
from tbmem.analysis.runs.comparison import compare_analyses, odd_one
from tbmem.offline.analyze import analyze as analyze_file
from tbmem.present.text.analysis_tables import (
    analyses_view,
    comparison_screen,
    efficiency_words,
    failed_sentence,
    named_shares,
    overview_screen,
    peak_line,
    side_cells,
)
from tbmem.units import GIB, MIB
from tests.analysis.timelines import recording
from tests.offline.snapshots import write_snapshot


def _shown(screen: RenderableType) -> str:
    file = io.StringIO()
    Console(width=200, file=file).print(screen)
    return file.getvalue()


def test_the_line_of_a_peak_leaves_out_what_is_not_known() -> None:
    device = replace(analyze(recording({"bytes": 8, "begin": 0})).main, name="cuda:0", events=900)
    peak = PeakMoment(bytes=2 * GIB, event=7, ns=-1, step=3, phase="BACKWARD", line="model.py:41 forward")

    assert peak_line(replace(device, peak=peak, total_bytes=8 * GIB)) == (
        "GPU 0 peak 2.00 GiB of requested bytes (25 % of 8.00 GiB) · step 3, backward pass, event 7 of 900"
        " · model.py:41 forward"
    )
    bare = replace(peak, step=-1, phase="OTHER", line="")
    assert peak_line(replace(device, peak=bare)) == "GPU 0 peak 2.00 GiB of requested bytes · event 7 of 900"
    before = replace(bare, event=-1)
    assert peak_line(replace(device, peak=before)).endswith("· at the beginning of what was recorded")


def test_what_of_the_reserved_memory_was_in_use() -> None:
    device = replace(analyze(recording()).main, grade="good", efficiency_percent=87.54, peak_reserved_bytes=GIB)

    assert (
        efficiency_words(device)
        == "87.5 % of the 1.00 GiB reserved at most were in use at the peak (good; excellent is above 98 %)"
    )
    assert efficiency_words(replace(device, efficiency_percent=None)) == ""
    assert side_cells(replace(device, reserved_bytes=None, efficiency_percent=None))[2:] == ("", "")


def test_a_request_that_failed_is_set_against_what_was_free() -> None:
    free = Fragmentation(
        free_bytes=100,
        largest_free_block_bytes=40,
        failing_request_bytes=50,
        failing_request_fits_free_sum=True,
    )
    device = replace(analyze(recording()).main, ooms=2, fragmentation=free)

    assert failed_sentence(device) == (
        "2 requests failed, out of memory, the last of 50 B: no more than the 100 B that are free in all, where the"
        " largest free block has 40 B"
    )


def test_shares_without_a_name_are_none() -> None:
    shares = [
        Share(name=name, bytes=size, count=1, percent=1.0) for name, size in (("a", 1), ("b", 0), ("(no stack)", 9))
    ]

    assert [share.name for share in named_shares(shares)] == ["a"]


def test_several_recordings_and_the_odd_one(tmp_path: Path) -> None:
    for rank, size in enumerate((4, 4, 9, 4)):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[size * MIB])
    analyses = [analyze_file(tmp_path / f"rank{rank}.pickle") for rank in range(4)]
    odd = odd_one(analyses)

    shown = _shown(overview_screen(analyses, odd))

    assert "rank2 differs from the others: peak of 9.00 MiB, where the median is 4.00 MiB (+5.00 MiB)" in shown
    assert "None of them stands out." in _shown(overview_screen(analyses[:2] + analyses[3:], None))
    # and for programs
    view = analyses_view(analyses, odd)
    assert (list(view["recordings"]), view["odd_one"]["name"]) == (["rank0", "rank1", "rank2", "rank3"], "rank2")
    assert analyses_view(analyses[:1], None) == analyses[0].to_dict()


def test_side_by_side_only_what_one_of_them_has_has_a_column(tmp_path: Path) -> None:
    # given
    for rank in range(2):
        write_snapshot(tmp_path / f"rank{rank}.pickle", sizes=[4 * MIB])
    on_gpu = [analyze_file(tmp_path / f"rank{rank}.pickle") for rank in range(2)]
    nothing_reserved = {"reserved_bytes": None, "efficiency_percent": None}
    on_cpu = [replace(each, devices=(replace(each.main, **nothing_reserved),)) for each in on_gpu]
    # when
    (of_cpu, of_gpu) = (_shown(overview_screen(each, None)) for each in (on_cpu, on_gpu))
    # then
    assert "reserved" in of_gpu
    assert "reserved" not in of_cpu
    assert "peak" in of_cpu


def test_a_comparison_lists_changes_and_no_nameless_breakdown() -> None:
    rows = [{"bytes": size, "begin": 0, "stack": (("train.py", 3, "[/b]"),)} for size in (4 * MIB, 6 * MIB)]
    before, after = (analyze(recording(row), name=name) for name, row in zip("ab", rows, strict=True))

    shown = _shown(comparison_screen(compare_analyses(before, after)))

    assert "a → b" in shown
    assert "+2.00 MiB" in shown
    assert "train.py:3 [/b]" in shown
    assert "(no operator)" not in shown
