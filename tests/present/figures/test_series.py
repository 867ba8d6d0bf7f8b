"""Memory over the steps of a run as a picture."""

from __future__ import annotations

from pathlib import Path

from tbmem.analysis.runs.run_report import series_of
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog
from tbmem.model.sample_row import SampleRow
from tbmem.present.figures.series import draw_series, marks_of
from tests.conftest import GIB, MakeSample
from tests.present.figures.pngs import size_of_png


def test_the_picture_of_a_run(make_sample: MakeSample, tmp_path: Path) -> None:
    rows = [SampleRow(step, 1, GIB, GIB, make_sample(step, step)) for step in range(1, 30)]
    series = series_of([MonitorLog(rows=rows)])

    draw_series("a", series, (), [{"number": 1, "first_step": 4, "last_step": 6}], tmp_path / "a.png")

    assert size_of_png(tmp_path / "a.png")[0] == 1440


def _finding(kind: FindingKind, device: str, rank: int = 0) -> Finding:
    severity = Severity.WARNING
    return Finding(kind=kind, severity=severity, device=device, rank=rank, first_step=1, last_step=9, message="")


def test_marks_are_those_of_the_series_without_suspicions(make_sample: MakeSample) -> None:
    rows = [SampleRow(step, 1, GIB, GIB, make_sample(step, 1)) for step in range(1, 10)]
    (series,) = series_of([MonitorLog(rows=rows)])
    leak = _finding(FindingKind.LEAK, "cuda:0")
    quiet = [_finding(kind, "cuda:0") for kind in FindingKind if kind.is_quiet]

    found = marks_of(
        series, [leak, _finding(FindingKind.LEAK, "cuda:1"), _finding(FindingKind.LEAK, "cuda:0", 1), *quiet]
    )

    assert quiet
    assert found == [leak]


def test_each_series_has_a_chart_up_to_six(make_sample: MakeSample, tmp_path: Path) -> None:
    def height(ranks: int) -> int:
        rows = [
            SampleRow(step, 1, None, None, make_sample(step, 1, rank=rank)) for rank in range(ranks) for step in (1, 2)
        ]
        draw_series("a", series_of([MonitorLog(rows=rows)]), (), (), tmp_path / "a.png")
        return size_of_png(tmp_path / "a.png")[1]

    # 1.2 inches of heading, and 4.6 for each, of 120 dots
    assert [height(ranks) for ranks in (1, 6, 9)] == [696, 3456, 3456]
