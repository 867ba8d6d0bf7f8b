"""LiveChart: a chart of the running cell, drawn anew from the background at most once a second."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from html import escape

from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import LogRecord
from tbmem.model.sample_row import SampleRow
from tbmem.notebook.output import Output
from tbmem.present.html.chart import ChartPoint, ChartSeries, chart_svg
from tbmem.present.html.records import block, finding_html
from tbmem.present.lines import peak_word, step_line
from tbmem.runtime.process.guard import Guard

_SECONDS = 1.0
"""Time between two pictures."""
_MOST_DEVICES, _MOST_FINDINGS = 4, 3
_JOIN_SECONDS = 5.0


class LiveChart:
    """A sink of records that draws them into one output, which stays as a picture.

    As long as there are no steps, the levels are drawn over the seconds since the cell began.

    Args:
        output: Where it is drawn.
        levels: Returns the bytes in use on each device, in any thread.
    """

    part = "the notebook's chart"

    def __init__(self, output: Output, levels: Callable[[], dict[str, int]], guard: Guard) -> None:
        self._output, self._levels, self._guard = output, levels, guard
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._over_time: dict[str, ChartSeries] = {}
        self._over_steps: dict[str, ChartSeries] = {}
        self._last: dict[str, SampleRow] = {}
        self._findings: list[Finding] = []
        self._lists_findings = True
        self._drawn = ""
        self._end = threading.Event()
        # an output belongs to the cell whose context its thread has
        work = contextvars.copy_context()
        self._thread = threading.Thread(target=work.run, args=(self._work,), name="tbmem chart", daemon=True)

    def start(self) -> None:
        """Show the chart, and draw it anew until ``stop()``."""
        self._began = time.monotonic()
        self._guard.run(self.part, self._read_levels)
        self._guard.run(self.part, self._draw)
        self._thread.start()

    def write(self, records: Sequence[LogRecord]) -> None:
        """Add samples and findings; called in any thread."""
        with self._lock:
            for record in records:
                if isinstance(record, SampleRow):
                    self._add(record)
                elif isinstance(record, Finding) and self._is_shown(record):
                    self._findings.append(record)

    def leave_out_findings(self) -> None:
        """Draw no findings below the charts any more: the summary has them."""
        self._lists_findings = False

    def close(self) -> None:
        """Do nothing: a cell may have several runs, one after the other."""

    def stop(self) -> None:
        """Draw what there is for the last time."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        self._guard.run(self.part, self._read_levels)
        self._guard.run(self.part, self._draw)

    def _work(self) -> None:
        while not self._end.wait(_SECONDS):
            self._guard.run(self.part, self._read_levels)
            self._guard.run(self.part, self._draw)

    def _read_levels(self) -> None:
        if self._over_steps:
            return
        seconds, levels = time.monotonic() - self._began, self._levels()
        with self._lock:
            for device, level in levels.items():
                word = "resident" if device == "cpu" else "allocated"
                series = self._over_time.setdefault(device, ChartSeries(device, word))
                series.add(ChartPoint(seconds, level, level))

    def _is_shown(self, finding: Finding) -> bool:
        """Whether a finding is drawn; that there were few steps says nothing about a cell that has none."""
        return not finding.kind.is_quiet and (bool(self._over_steps) or finding.kind is not FindingKind.SHORT_RUN)

    def _add(self, row: SampleRow) -> None:
        sample = row.sample
        word = peak_word("host_peak_rss" if sample.device == "cpu" else "peak_allocated")
        series = self._over_steps.setdefault(sample.device, ChartSeries(sample.device, peak_word=word))
        if series.points and sample.step <= series.points[-1].x:
            series.points.clear()  # the cell's next run
        series.total = sample.device_total
        low, high = row.allocated_min, row.allocated_max
        level = sample.allocated  # of the row before, where no step of this one has been read
        series.add(ChartPoint(sample.step, level if low is None else low, level if high is None else high, sample.peak))
        self._last[sample.device] = row

    def _draw(self) -> None:
        with self._lock:
            html, text = self._html(), self._text()
        if html != self._drawn:
            self._drawn = html
            self._output.show(html, text)

    def _html(self) -> str:
        has_steps = bool(self._over_steps)
        shown = list((self._over_steps if has_steps else self._over_time).values())[:_MOST_DEVICES]
        lines = [f"<div>{escape(step_line(row))}</div>" for row in self._last.values()]
        charts = [chart_svg(series, self._findings, "step" if has_steps else "second") for series in shown]
        findings = [finding_html(one) for one in self._findings[-_MOST_FINDINGS:]] if self._lists_findings else []
        return block([*charts, *lines[:_MOST_DEVICES], *findings])

    def _text(self) -> str:
        lines = [step_line(row) for row in self._last.values()]
        return "\n".join(lines) or "tbmem: memory over time"
