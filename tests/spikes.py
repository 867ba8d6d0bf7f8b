"""The spike that tests of runs and of their files share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbmem.model.finding import Finding, FindingKind, Severity


def spike_in_a_window(step: int, evidence: Mapping[str, Any]) -> Finding:
    """A spike of the CPU, as in a step while a profiler window was open."""
    return Finding(
        kind=FindingKind.SPIKE,
        severity=Severity.WARNING,
        device="cpu",
        first_step=step,
        last_step=step,
        message="",
        evidence=evidence,
    )
