"""The chart of a notebook's cell: its lines, its marks, and that it is readable on light and dark."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.present.html.chart import ChartPoint, ChartSeries, chart_svg
from tbmem.present.palette import ON_ANY_GROUND
from tests.conftest import GIB, MIB

GROUNDS = ("#FFFFFF", "#111111", "#1E1E1E")
"""Of notebooks: light, JupyterLab's dark, VS Code's dark."""
STANDS_OUT = 3.0
"""Contrast of lines: WCAG 2.2, level AA."""


def series_of(*levels: float, total: int | None = None) -> ChartSeries:
    series = ChartSeries("cuda:0", total=total)
    for step, level in enumerate(levels, start=1):
        series.add(ChartPoint(step, level, level, level * 1.5))
    return series


def texts(svg: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter("text")]


def lines(svg: str) -> list[list[tuple[float, float]]]:
    """Points of the lines that are not straight."""
    paths = [one.get("d", "") for one in ElementTree.fromstring(svg).iter("path")]
    found = [re.findall(r"([\d.]+) ([\d.]+)", path) for path in paths if " L" in path]
    return [[(float(x), float(y)) for x, y in line] for line in found]


def test_levels_and_peaks_are_lines_from_left_to_right() -> None:
    svg = chart_svg(series_of(1 * GIB, 2 * GIB, 3 * GIB))

    peaks, levels = lines(svg)
    assert [x for x, _ in levels] == sorted(x for x, _ in levels)
    assert [y for _, y in levels] == sorted((y for _, y in levels), reverse=True)  # the top is 0
    assert all(peak < level for (_, peak), (_, level) in zip(peaks, levels, strict=True))
    assert {"GPU 0", "allocated", "peak", "step", "2 GiB", "1", "3"} <= set(texts(svg))


def test_the_capacity_is_drawn_where_memory_comes_near_it() -> None:
    assert "capacity 8 GiB" in texts(chart_svg(series_of(4 * GIB, total=8 * GIB)))
    assert "capacity 80 GiB" not in texts(chart_svg(series_of(4 * GIB, total=80 * GIB)))


def test_a_finding_is_a_mark_on_the_line() -> None:
    finding = Finding(
        kind=FindingKind.SPIKE, severity=Severity.WARNING, device="cuda:0", first_step=2, last_step=2, message="x"
    )

    svg = chart_svg(series_of(MIB, 2 * MIB, MIB), [finding])

    assert [one.text for one in ElementTree.fromstring(svg).iter("title")] == ["SPIKE in step 2"]


@pytest.mark.parametrize("levels", [(), (0,), (5,), (0, 0, 0)], ids=["none", "zero", "one", "zeros"])
def test_few_points_are_a_valid_picture(levels: tuple[float, ...]) -> None:
    ElementTree.fromstring(chart_svg(series_of(*levels)))
    ElementTree.fromstring(chart_svg(series_of(*levels), x_word="second"))


def test_a_long_series_keeps_its_extremes() -> None:
    # given a run of a hundred thousand steps with one spike and one low
    series = ChartSeries("cuda:0")
    for step in range(1, 100_001):
        level = 9.0 if step == 4321 else 1.0 if step == 70_000 else 5.0
        series.add(ChartPoint(step, level, level, level))

    assert len(series.points) <= 1200
    assert max(point.high or 0 for point in series.points) == 9.0
    assert min(point.low or 9 for point in series.points) == 1.0
    assert series.points[-1].x == 100_000
    assert len(chart_svg(series)) < 100_000


def test_a_name_is_only_text() -> None:
    series = series_of(MIB)
    series.device = "<script>"

    assert "<script" not in chart_svg(series).lower()


@pytest.mark.parametrize("ground", GROUNDS)
def test_lines_stand_out_from_any_ground(ground: str) -> None:
    low = {colour: _contrast(colour, ground) for colour in ON_ANY_GROUND.values()}

    assert min(low.values()) >= STANDS_OUT, low


def _contrast(first: str, second: str) -> float:
    dark, light = sorted((_luminance(first), _luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
