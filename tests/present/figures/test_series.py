"""Memory over the steps of a run as a picture."""

from __future__ import annotations

from pathlib import Path

from tbmem.analysis.runs.run_report import series_of
from tbmem.model.monitor_log import MonitorLog, SampleRow
from tbmem.present.figures.series import draw_series
from tests.conftest import GIB, MakeSample
from tests.present.figures.pngs import size_of_png


def test_the_picture_of_a_run(make_sample: MakeSample, tmp_path: Path) -> None:
    rows = [SampleRow(step, 1, GIB, GIB, make_sample(step, step)) for step in range(1, 30)]
    series = series_of([MonitorLog(rows=rows)])

    draw_series("a", series, (), [{"number": 1, "first_step": 4, "last_step": 6}], tmp_path / "a.png")

    assert size_of_png(tmp_path / "a.png")[0] == 1440
