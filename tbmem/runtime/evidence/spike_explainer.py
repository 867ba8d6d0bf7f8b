"""Attributes spikes within a profiler window to allocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tbmem.analysis.diagnosis.spike_source import SpikeSources, spike_sources, step_levels
from tbmem.errors import TbmemError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.timeline import AllocationTimeline
from tbmem.sources.counters.devices import CPU
from tbmem.sources.trace.reader import read_trace
from tbmem.units import MIB

_MOST_BYTES = 16 * MIB
"""Largest trace file that is read: a compressed megabyte takes about 0.1 s."""
_MOST_SECONDS = 2.0
"""Seconds after which no further trace is read; ``tbmem analyze`` reads the rest."""


def explain_spikes(
    findings: Iterable[Finding], traces: Mapping[Path, range], clock: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """A further finding for each spike, also a periodic one, that a trace of ``traces`` (path to steps) contains."""
    explained = []
    until = clock() + _MOST_SECONDS
    for spike in findings:
        if spike.kind not in (FindingKind.SPIKE, FindingKind.PERIODIC) or "allocated_by" in spike.evidence:
            continue
        recorded = ((path, step) for path, steps in traces.items() for step in steps if _is_step_of(spike, step))
        path, step = next(recorded, (None, 0))
        sources = _sources(path, spike.device, step) if path is not None and clock() < until else SpikeSources()
        if path is not None and sources.largest:
            explained.append(_explained(spike, sources, step, path.name))
    return explained


def recorded_levels(
    traces: Mapping[Path, range], step: int, clock: Callable[[], float] = time.monotonic
) -> dict[int, int]:
    """By recorded step the peak of the CPU's tensors in bytes: of the window of ``step``, then of others in time."""
    until = clock() + _MOST_SECONDS
    levels: dict[int, int] = {}
    for path, steps in sorted(traces.items(), key=lambda trace: step not in trace[1]):
        timeline = _timeline(path) if not levels or clock() < until else None
        if timeline is not None and CPU in (names := [device.name for device in timeline.devices]):
            known = step_levels(timeline, names.index(CPU))
            levels |= {each: level for each, level in known.items() if each in steps}
    return levels


def _is_step_of(spike: Finding, step: int) -> bool:
    """Whether memory was high in a step: the spike's own; of a periodic one those that are whole periods apart."""
    if spike.kind is FindingKind.SPIKE:
        return step == spike.first_step
    last, period = spike.evidence["member_steps"][-1], spike.evidence["period_steps"]
    return bool((step - last) % period == 0)


def recorded_sources(traces: Mapping[Path, range], step: int) -> tuple[Path, SpikeSources]:
    """The trace that a step of the CPU was recorded in, and what it held beyond the others of its window."""
    path = next(path for path, steps in traces.items() if step in steps)
    return path, _sources(path, CPU, step)


def _sources(path: Path, device: str, step: int) -> SpikeSources:
    timeline = _timeline(path)
    if timeline is None:
        return SpikeSources()
    numbers = [number for number, known in enumerate(timeline.devices) if known.name == device]
    return spike_sources(timeline, numbers[0], step) if numbers else SpikeSources()


def _timeline(path: Path) -> AllocationTimeline | None:
    """What a trace has recorded; ``None`` if it is large or damaged: the part that failed to write it has said so."""
    try:
        return read_trace(path) if path.stat().st_size <= _MOST_BYTES else None
    except (TbmemError, OSError):
        return None


def _explained(spike: Finding, sources: SpikeSources, step: int, file: str) -> Finding:
    return replace(
        spike,
        severity=Severity.INFO,
        first_step=step,
        last_step=step,
        message=f"{spike.message} · in step {step}, {sources}",
        evidence={**spike.evidence, **sources.to_evidence(file)},
        advice="",
    )
