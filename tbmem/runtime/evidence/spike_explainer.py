"""Attributes spikes within a profiler window to allocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tbmem.analysis.diagnosis.spike_source import SpikeSource, excess_over_others, spike_sources
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
        if spike.kind not in (FindingKind.SPIKE, FindingKind.PERIODIC):
            continue
        recorded = ((path, step) for path, steps in traces.items() for step in steps if _is_step_of(spike, step))
        path, step = next(recorded, (None, 0))
        sources = _sources(path, spike, step) if path is not None and clock() < until else ()
        if path is not None and sources:
            explained.append(_explained(spike, sources, step, path.name))
    return explained


def recorded_excess(traces: Mapping[Path, range], step: int) -> int | None:
    """Bytes of the CPU's tensors by which a step has passed the other steps of its window; ``None`` if unknown."""
    for path, steps in traces.items():
        timeline = _timeline(path) if step in steps else None
        if timeline is not None and CPU in (names := [device.name for device in timeline.devices]):
            return excess_over_others(timeline, names.index(CPU), step, steps)
    return None


def _is_step_of(spike: Finding, step: int) -> bool:
    """Whether memory was high in a step: the spike's own; of a periodic one those that are whole periods apart."""
    if spike.kind is FindingKind.SPIKE:
        return step == spike.first_step
    last, period = spike.evidence["member_steps"][-1], spike.evidence["period_steps"]
    return bool((step - last) % period == 0)


def _sources(path: Path, spike: Finding, step: int) -> tuple[SpikeSource, ...]:
    timeline = _timeline(path)
    if timeline is None:
        return ()
    numbers = [number for number, device in enumerate(timeline.devices) if device.name == spike.device]
    return spike_sources(timeline, numbers[0], step) if numbers else ()


def _timeline(path: Path) -> AllocationTimeline | None:
    """What a trace has recorded; ``None`` if it is large or damaged: the part that failed to write it has said so."""
    try:
        return read_trace(path) if path.stat().st_size <= _MOST_BYTES else None
    except (TbmemError, OSError):
        return None


def _explained(spike: Finding, sources: tuple[SpikeSource, ...], step: int, file: str) -> Finding:
    allocated = [
        {"line": source.line, "operator": source.operator, "bytes": source.bytes, "allocations": source.allocations}
        for source in sources
    ]
    return replace(
        spike,
        severity=Severity.INFO,
        first_step=step,
        last_step=step,
        message=f"the spike of step {step}, beyond what its window's other steps held: " + ", ".join(map(str, sources)),
        evidence={**spike.evidence, "allocated_by": allocated, "files": [file]},
        advice="",
    )
