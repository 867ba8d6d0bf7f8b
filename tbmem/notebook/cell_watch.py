"""CellWatch: watches one execution of a cell, with a run of its own unless the cell has one."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tbmem.model.cell_memory import CellMemory
from tbmem.model.run_summary import RunSummary
from tbmem.notebook.live_chart import LiveChart
from tbmem.notebook.options import CellOptions
from tbmem.notebook.output import Output, draws_html
from tbmem.present.html.records import record_html
from tbmem.present.text.cell import cell_lines
from tbmem.present.text.run_end import summary_lines
from tbmem.runtime.background_writer import Sink
from tbmem.runtime.cell_meter import CellMeter
from tbmem.runtime.launch.program import OptimizerRun
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.lifecycle import failure
from tbmem.runtime.run_observer import ObservedRun, RunObservers
from tbmem.sources.torch_state.out_of_memory import ran_out_of_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedCell:
    """Result of a cell, for ``%%tbmem --into``."""

    summary: RunSummary | None
    """Verdicts, findings, peaks and files of the last run in it; ``None`` without a step."""
    memory: CellMemory | None
    """What the cell itself has used and kept."""


class CellWatch:
    """Watches a cell from its beginning to ``end()``.

    The steps of torch's optimizers are the steps of a run. A callback that the cell itself starts takes its place. A
    cell without either leaves no files: its memory before, within and after it is shown.

    Args:
        shell: The running IPython.
        options: How the cell is watched.

    Raises:
        RunFolderError: The run folder cannot be written.
        ConfigError: ``monitor.devices`` names a device that is not there.
    """

    def __init__(self, shell: Any, options: CellOptions) -> None:
        self._shell = shell
        self._guard = Guard()
        self._resources = ExitStack()
        self._others: list[ObservedRun] = []
        self._meter: CellMeter | None = None
        self._chart: LiveChart | None = None
        self._run: OptimizerRun | None = None
        self._has_run = False  # one to be shown
        self._into = options.into
        if not options.config.config.enabled:
            return
        try:
            self._open(options)
        except BaseException:
            self._resources.close()
            raise

    def _open(self, options: CellOptions) -> None:
        self._meter = CellMeter(self._guard)
        self._resources.callback(self._meter.close)
        if options.has_chart and draws_html(self._shell):
            self._chart = LiveChart(Output(self._shell), self._meter.now, self._guard)
        self._resources.enter_context(RunObservers.added(self))
        logdir = Path(options.config.config.run.logdir).expanduser()
        self._new_logdir = None if logdir.exists() else logdir
        self._run = OptimizerRun(options.config, options.step_on)
        if self._chart is not None:
            self._chart.start()
            self._resources.callback(self._chart.stop)

    def run_begins(self, memory: ObservedRun) -> Sink | None:
        """A callback starts in the cell: of this watch, or of the cell's own, for which this one makes way."""
        if self._run is not None:
            self._others.append(memory)
            self._end_run(None)
        return self._chart

    def end(self, error: BaseException | None = None) -> None:
        """End the run, by ``error`` if given, and show the summary. Never raises."""
        try:
            self._end_run(failure(error))
        finally:
            meter, self._meter = self._meter, None
            cell = self._guard.run("memory of the cell", meter.end, failure(error)) if meter is not None else None
            if self._chart is not None and self._summaries():
                self._chart.leave_out_findings()
            self._guard.run("watch of the cell", self._resources.close)
        for summary in self._summaries():
            self._show(summary, summary_lines(summary))
        if cell is not None:
            for peak in (peak for summary in self._summaries() for peak in summary.peaks):
                cell = cell.reaching(peak.device, peak.bytes)
            self._show(cell, cell_lines(cell))
        if self._into is not None:
            last = next(reversed(self._summaries()), None)
            self._shell.user_ns[self._into] = WatchedCell(summary=last, memory=cell)
        self._others.clear()

    def _end_run(self, error: BaseException | None) -> None:
        run = self._run
        if run is None or not run.memory.is_active:
            return
        run.close_steps(error)  # which may report the last one
        findings = run.memory.monitor.findings if run.memory.monitor is not None else ()
        self._has_run = run.has_stepped or ran_out_of_memory(error, findings)
        if self._has_run:
            run.end(error)
        else:
            run.warn_of_no_step(if_none_stepped=False)
            self._discard(run)

    def _discard(self, run: OptimizerRun) -> None:
        """End a run without a step, and remove its files: the folder was made for this cell."""
        run.discard()
        if self._new_logdir is not None:
            with suppress(OSError):
                self._new_logdir.rmdir()  # unless there is something in it

    def _summaries(self) -> list[RunSummary]:
        own: list[ObservedRun] = [self._run.memory] if self._run is not None and self._has_run else []
        return [memory.summary for memory in (*own, *self._others) if memory.summary is not None]

    def _show(self, record: RunSummary | CellMemory, lines: list[str]) -> None:
        self._guard.run("output of the cell", Output(self._shell).show, record_html(record), "\n".join(lines))
