"""How a finding is made, and the verdicts of runs without a problem."""

from __future__ import annotations

from typing import Any

from tbmem.analysis.diagnosis.advice import ADVICE
from tbmem.model.evidence import Channel
from tbmem.model.finding import Facts, Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_range

_PERIOD_OVER = 1.5  # of a period's length without one more, from which on it is said to be over


def stable(
    sample: MemorySample,
    lowest: int,
    highest: int,
    judged: int,
    noted: Finding | None,
    *,
    malloc_read: int | None = None,
) -> Finding:
    """No problem: the range of the levels in bytes over the evaluated steps; ``noted``: a period, or an evaluation.

    ``malloc_read``: in how few of them malloc's figures were read; the levels are then those of the resident memory.
    """
    message = f"stable at {format_range(lowest, highest)} over {judged} evaluated steps"
    evidence: dict[str, Any] = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
    if malloc_read is not None:
        message = f"the resident memory of the process is {message} · malloc's figures, which take long to read in this"
        message += f" heap, are of {malloc_read} of them only: what grows in its free memory does not show"
        evidence |= {"channel": Channel.HOST.value, "read_steps": malloc_read}
    if noted is not None:
        message += f" · {_until(noted, sample.step)}{noted.message}"
        evidence |= {key: value for key, value in noted.evidence.items() if key == "period_steps"}
    return make_finding(FindingKind.STABLE, sample, message, evidence, 1)


def _until(noted: Finding, step: int) -> str:
    """``'until step 200, '``: of a period that has not shown for longer than it lasts."""
    members = noted.evidence.get("member_steps", ())
    last = max((*members, noted.last_step))
    is_over = noted.kind is FindingKind.PERIODIC and step > last + _PERIOD_OVER * noted.evidence["period_steps"]
    return f"until step {last}, " if is_over else ""


def too_early(sample: MemorySample, judged: int, enough: int) -> Finding:
    """Too few steps were judged for a verdict."""
    message = f"too few steps for a verdict: {judged} of {enough} steps evaluated"
    return make_finding(FindingKind.WARMUP, sample, message, {"judged_steps": judged}, 1)


def too_short(sample: MemorySample, lowest: int, highest: int, judged: int) -> Finding:
    """The level, in bytes, rose throughout the steps that were judged, too few to tell what that becomes."""
    message = risen_in_few_steps(lowest, highest, judged)
    evidence = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
    return make_finding(FindingKind.WARMUP, sample, message, evidence, 1)


def risen_in_few_steps(lowest: int, highest: int, judged: int) -> str:
    """``'rose from 90.00 MiB to 120.00 MiB in 30 evaluated steps · too few to tell a leak from a warm-up'``."""
    risen = f"rose from {format_bytes(lowest)} to {format_bytes(highest)} in {judged} evaluated steps"
    return f"{risen} · too few to tell a leak from a warm-up"


def no_steps() -> Finding:
    """Not one step was seen."""
    return make_finding(FindingKind.WARMUP, MemorySample(step=0, time=0.0, device=""), "no step was recorded", {}, 0)


def make_finding(
    kind: FindingKind,
    sample: MemorySample,
    message: str,
    evidence: Facts,
    first_step: int,
    last_step: int | None = None,
    *,
    severity: Severity = Severity.INFO,
    advice: str = "",
) -> Finding:
    """A finding about a sample's device, from ``first_step`` to ``last_step`` (by default the sample's)."""
    return Finding(
        kind=kind,
        severity=severity,
        device=sample.device,
        rank=sample.rank,
        first_step=first_step,
        last_step=sample.step if last_step is None else last_step,
        message=message,
        evidence=evidence,
        advice=advice or ADVICE.get(kind, ""),
    )
