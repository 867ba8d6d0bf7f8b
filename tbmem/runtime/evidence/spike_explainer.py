"""Attributes spikes within a profiler window to allocations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from tbmem.analysis.diagnosis.spike_source import SpikeSource, spike_sources
from tbmem.errors import TbmemError
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.sources.trace.reader import read_trace
from tbmem.units import MIB

_MOST_BYTES = 16 * MIB
"""Largest trace file that is read: a compressed megabyte takes about 0.1 s."""
_MOST_SECONDS = 2.0
"""Seconds after which no further trace is read; ``tbmem analyze`` reads the rest."""


def explain_spikes(
    findings: Iterable[Finding], traces: Mapping[Path, range], clock: Callable[[], float] = time.monotonic
) -> list[Finding]:
    """A further finding for each spike whose allocations a trace of ``traces`` (path to steps) contains."""
    explained = []
    until = clock() + _MOST_SECONDS
    for spike in findings:
        if spike.kind is FindingKind.SPIKE:
            path = next((path for path, steps in traces.items() if spike.first_step in steps), None)
            sources = _sources(path, spike) if path is not None and clock() < until else ()
            if path is not None and sources:
                explained.append(_explained(spike, sources, path.name))
    return explained


def _sources(path: Path, spike: Finding) -> tuple[SpikeSource, ...]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            return ()
        timeline = read_trace(path)
    except (TbmemError, OSError):
        return ()  # the part that failed to write the file has reported it
    numbers = [number for number, device in enumerate(timeline.devices) if device.name == spike.device]
    return spike_sources(timeline, numbers[0], spike.first_step) if numbers else ()


def _explained(spike: Finding, sources: tuple[SpikeSource, ...], file: str) -> Finding:
    allocated = [
        {"line": source.line, "operator": source.operator, "bytes": source.bytes, "allocations": source.allocations}
        for source in sources
    ]
    return replace(
        spike,
        severity=Severity.INFO,
        message=f"the spike of step {spike.first_step}, beyond what its window's other steps held: "
        + ", ".join(map(str, sources)),
        evidence={**spike.evidence, "allocated_by": allocated, "files": [file]},
        advice="",
    )
