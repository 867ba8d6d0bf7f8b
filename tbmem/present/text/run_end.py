"""The lines that end a run, and the same as plain JSON."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from tbmem.analysis.runs.run_status import Standing, end_status
from tbmem.model.finding import Finding
from tbmem.model.run_summary import WHAT_COUNTS, Peak, ProfilerCost, RunSummary
from tbmem.present.lines import SEPARATOR, device_label, peak_word
from tbmem.units import format_bytes, format_duration, format_share

_PEAK = ("bytes", "step", "counter", "total", "headroom", "own", "recorded", "recorded_step", "ended")
_NOTICEABLE = 1.05
"""Slowdown below which the difference is noise."""


def summary_view(summary: RunSummary) -> dict[str, Any]:
    """The summary as plain JSON values: ``verdicts`` and ``peak`` by device, ``traces``, ``findings``, ..."""
    return {
        "verdicts": {verdict.device: verdict.kind.value for verdict in summary.verdicts},
        "peak": {
            peak.device: {"text": format_bytes(peak.bytes), **{name: getattr(peak, name) for name in _PEAK}}
            for peak in summary.peaks
        },
        **{name: list(getattr(summary, name)) for name in ("traces", "snapshots", "address_books", "problems")},
        **{
            name: getattr(summary, name)
            for name in ("monitor_log", "steps", "rank", "logdir", "exception", "windows_deleted")
        },
        "run": summary.folder,
        "seconds": round(summary.seconds, 3),
        "findings": [finding.to_dict() for finding in summary.findings],
        "profiler": summary.profiler and {**asdict(summary.profiler), "slowdown": summary.profiler.slowdown},
        **end_status(summary.exception, summary.out_of_memory).to_dict(),
    }


def summary_lines(summary: RunSummary) -> list[str]:
    """The summary for the console, most important first."""
    verdicts = [SEPARATOR.join(filter(None, (verdict_line(one), one.advice))) for one in summary.verdicts]
    lines = [heading_line(summary), *verdicts, *figure_lines(summary)]
    if written := written_line(summary):
        lines.append(written)
        lines.append(f"look:  {look_command(summary)}")
    return lines


def verdict_line(verdict: Finding) -> str:
    """A verdict and its sentence: ``'verdict GPU 0: STABLE · stable at 1.00 GiB over 93 evaluated steps'``."""
    return SEPARATOR.join((verdict_heading(verdict), verdict.message))


def verdict_heading(verdict: Finding) -> str:
    """``'verdict GPU 0: STABLE'``."""
    return f"verdict {device_label(verdict.device)}: {verdict.kind.label}"


def figure_lines(summary: RunSummary) -> list[str]:
    """The lines between the verdicts and the files: peaks, cost of the profiler, problems."""
    lines = [peak_line(peak) for peak in summary.peaks]
    if summary.profiler is not None:
        is_counted = all(peak.counter != "host_peak_rss" for peak in summary.peaks)
        lines.append(_cost_line(summary.profiler, is_counted=is_counted))
    return [*lines, *(f"problem: {problem}" for problem in summary.problems)]


def written_line(summary: RunSummary) -> str:
    """Which files were written, and where; empty if none were."""
    written = _written(summary)
    return f"wrote {written} to {summary.folder}" if written else ""


def look_command(summary: RunSummary) -> str:
    """The command that shows the run."""
    return f"tensorboard --logdir {shlex.quote(summary.logdir)}"


def heading_line(summary: RunSummary) -> str:
    """``'30 steps in a run of 12.3 s'``, and how the run ended if not in order."""
    status = end_status(summary.exception, summary.out_of_memory)
    ended = "" if status.standing is Standing.ENDED else f", {status.text}"
    steps = f"{summary.steps} step{'' if summary.steps == 1 else 's'}"
    rank = f" on rank {summary.rank}" if summary.rank else ""
    advice = "" if summary.steps or ended else f": {WHAT_COUNTS}"
    return f"{steps}{rank} in a run of {format_duration(summary.seconds)}{ended}{advice}"


def peak_line(peak: Peak, several_ranks: bool = False) -> str:
    """``'peak GPU 0: 60.00 GiB (75 % of 80.00 GiB) in step 47'``, on the CPU with tbmem's part."""
    share = f" ({format_share(peak.bytes, peak.total)})" if peak.total else ""
    rank = f"rank {peak.rank} " if several_ranks else ""
    place = f"{rank}{device_label(peak.device)}"
    own = f", of this tbmem {format_bytes(peak.own)}" if peak.own else ""
    highest = f"{peak_word(peak.counter)} {place}: {format_bytes(peak.bytes)}{share} {peak.when}{own}"
    return highest if peak.recorded is None else SEPARATOR.join([highest, _recorded(peak, peak.recorded)])


def _recorded(peak: Peak, recorded: int) -> str:
    """A higher step of a window or its warm-up: what it needed without the records is in the recording."""
    return f"{format_bytes(recorded)} in step {peak.recorded_step}, with profiling's own memory"


def _cost_line(cost: ProfilerCost, *, is_counted: bool) -> str:
    """What the profiler has cost; on the CPU, where its records are in the same heap, its steps are not counted."""
    windows = f"{cost.windows} window{'' if cost.windows == 1 else 's'}"
    steps = f"{cost.recorded_steps} step{'' if cost.recorded_steps == 1 else 's'}"
    left_out = "" if is_counted else " (see tbmem analyze; counted in the peak only where they spike)"
    parts = [f"profiler: {steps} recorded in {windows}{left_out}"]
    if cost.slowdown is not None:
        much = f"{cost.slowdown:.1f} times as long as" if cost.slowdown > _NOTICEABLE else "no longer than"
        parts.append(f"a recorded step took {much} a plain one")
    parts.append(
        f"training waited {format_duration(cost.writing_seconds)} for traces of {format_bytes(cost.trace_bytes)}"
    )
    if cost.host_bytes is not None:
        parts.append(f"up to {format_bytes(cost.host_bytes)} more of host memory when a window had ended")
    return SEPARATOR.join(parts)


def _written(summary: RunSummary) -> str:
    counts = {
        "trace": len(summary.traces),
        "snapshot": len(summary.snapshots),
        "address book": len(summary.address_books),
    }
    parts = [f"{number} {word}{'s' if number > 1 else ''}" for word, number in counts.items() if number]
    live = [word for word, there in (("live log", summary.monitor_log), ("scalars", summary.scalars)) if there]
    written = ", ".join([*parts, *([f"the {' and '.join(live)}"] if live else [])])
    deleted = f" (those of {summary.windows_deleted} more windows are deleted, profiling.keep)"
    return written + deleted * (summary.windows_deleted > 0)
