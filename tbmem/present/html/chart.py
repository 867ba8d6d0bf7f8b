"""Draws memory over steps or seconds as SVG, for a notebook's output: no script, readable on light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from tbmem.model.finding import Finding
from tbmem.present.labels import size_label, unit_for
from tbmem.present.lines import device_label
from tbmem.present.palette import BLUE, MUTED, ON_ANY_GROUND, RED, finding_colour

_WIDTH, _HEIGHT = 860, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 74, 12, 26, 34
_MOST_POINTS = 1200
"""Points of a series; of more, two neighbours are merged into one, with their extremes."""
_CAPACITY_FROM = 0.6
"""Share of the capacity from which its line is drawn."""
_ROUND = (1, 2, 2.5, 5, 10)


@dataclass(slots=True)
class ChartPoint:
    """Levels in bytes up to a step, or second; ``None`` where they are not known."""

    x: float
    low: float | None = None
    high: float | None = None
    peak: float | None = None

    def merged(self, later: ChartPoint) -> ChartPoint:
        """Both as one."""
        return ChartPoint(
            later.x, _of(min, self.low, later.low), _of(max, self.high, later.high), _of(max, self.peak, later.peak)
        )


@dataclass(slots=True)
class ChartSeries:
    """The levels of one device."""

    device: str
    level_word: str = "allocated"
    peak_word: str = "peak"
    total: int | None = None
    points: list[ChartPoint] = field(default_factory=list)

    def add(self, point: ChartPoint) -> None:
        """Append a point; a long series keeps its extremes."""
        self.points.append(point)
        if len(self.points) > _MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            rest = self.points[-1:] if len(self.points) % 2 else []
            self.points = [first.merged(second) for first, second in pairs] + rest

    @property
    def highest(self) -> float:
        """The highest level drawn."""
        return max(
            (value for point in self.points for value in (point.high, point.peak) if value is not None), default=0
        )


def chart_svg(series: ChartSeries, findings: Sequence[Finding] = (), x_word: str = "step") -> str:
    """The chart of one device, with its findings marked."""
    shows_capacity = bool(series.total) and series.highest >= _CAPACITY_FROM * (series.total or 0)
    plot = _Plot(series, max(series.highest, series.total or 0 if shows_capacity else 0), x_word)
    parts = [*plot.grid(), *plot.legend()]
    if shows_capacity:
        parts.append(plot.level(series.total or 0, "capacity"))
    parts.append(plot.line([(point.x, point.peak) for point in series.points], RED))
    levels = [(point.x, value) for point in series.points for value in dict.fromkeys((point.low, point.high))]
    parts.append(plot.line(levels, BLUE))
    parts += [plot.mark(finding) for finding in findings if x_word == "step" and finding.device == series.device]
    label = escape(f"Memory of {device_label(series.device)} over {x_word}s")
    return (
        f'<svg role="img" aria-label="{label}" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}"'
        f' style="max-width:100%;height:auto;display:block" font-size="11" font-family="inherit" fill="currentColor">'
        f"{''.join(parts)}</svg>"
    )


class _Plot:
    """Places of a chart in pixels."""

    def __init__(self, series: ChartSeries, top: float, x_word: str) -> None:
        self._series, self._x_word = series, x_word
        xs = [point.x for point in series.points] or [0.0]
        self._first, self._last = xs[0], max(xs[-1], xs[0] + (1 if x_word == "step" else 0.1))
        unit = unit_for(top)
        self._ticks = [tick * unit.bytes for tick in _ticks(0, max(top / unit.bytes, 1e-9), 4)]
        self._top = max(top * 1.05, self._ticks[-1]) or 1

    def x(self, value: float) -> float:
        return _LEFT + (value - self._first) / (self._last - self._first) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - value / self._top * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> list[str]:
        """Ticks of both axes, and their lines."""
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            parts.append(_path(f"M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}", "currentColor", ' stroke-opacity=".18"'))
            parts.append(_text(_LEFT - 6, y + 4, size_label(tick) if tick else "0", "end"))
        is_whole = self._x_word == "step"
        places = [tick for tick in _ticks(self._first, self._last, 8) if not is_whole or tick == int(tick)]
        parts += [_text(self.x(one), _HEIGHT - _BOTTOM + 16, f"{one:.12g}") for one in places]
        parts.append(_text(_WIDTH - _RIGHT, _HEIGHT - 4, self._x_word, "end"))
        return parts

    def legend(self) -> list[str]:
        """Name of the device, and of the lines that are drawn."""
        series = self._series
        parts = [_text(_LEFT, 14, device_label(series.device), "start", ' font-weight="bold"')]
        names = [
            (series.level_word, BLUE, any(point.high is not None for point in series.points)),
            (series.peak_word, RED, any(point.peak is not None for point in series.points)),
        ]
        at = _LEFT + 70
        for name, colour, is_drawn in names:
            if is_drawn:
                parts += [
                    _path(f"M{at} 10h18", ON_ANY_GROUND[colour], ' stroke-width="2"'),
                    _text(at + 24, 14, name, "start"),
                ]
                at += 44 + 7 * len(name)
        return parts

    def line(self, values: Sequence[tuple[float, float | None]], colour: str) -> str:
        """A line through what is known; a single point as a dot."""
        known = [f"{self.x(x):.1f} {self.y(value):.1f}" for x, value in values if value is not None]
        if not known:
            return ""
        path = f"M{' L'.join(known)}" + ("h.01" if len(known) == 1 else "")
        wide = "6" if len(known) == 1 else "1.6"
        return _path(
            path, ON_ANY_GROUND[colour], f' stroke-width="{wide}" stroke-linejoin="round" stroke-linecap="round"'
        )

    def level(self, value: float, name: str) -> str:
        """A dotted line."""
        y = self.y(value)
        line = _path(f"M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}", ON_ANY_GROUND[MUTED], ' stroke-dasharray="2 3"')
        return line + _text(_WIDTH - _RIGHT, y - 4, f"{name} {size_label(value)}", "end")

    def mark(self, finding: Finding) -> str:
        """A finding at its last step, on the line."""
        step = finding.last_step
        point = next((one for one in self._series.points if one.x >= step), None) or self._series.points[-1]
        known = [value for value in (point.peak, point.high) if value is not None]
        x, y = self.x(min(max(step, self._first), self._last)), self.y(max(known, default=0.0))
        colour = finding_colour(finding.kind, finding.severity)
        title = escape(f"{finding.label} in step {step}")
        place = (
            f'd="M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z" fill="{ON_ANY_GROUND.get(colour, colour)}" stroke="currentColor"'
        )
        return f"<path {place}><title>{title}</title></path>"


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers between two bounds, at most one more than ``most``."""
    rough = (high - low) / most
    size = 10 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in _ROUND if size * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _of(pick: Callable[[Iterable[float]], float], *values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return pick(known) if known else None


def _path(path: str, colour: str, more: str = "") -> str:
    return f'<path d="{path}" fill="none" stroke="{colour}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{escape(text)}</text>'
