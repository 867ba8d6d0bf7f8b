"""What a test has seen goes in; a Finding with its sentence, its numbers and its advice comes out."""

from __future__ import annotations

from tbmem.analysis.advice import ADVICE
from tbmem.analysis.capacity import steps_left
from tbmem.analysis.floors import KEPT
from tbmem.analysis.growth import Growth
from tbmem.analysis.spikes import Jump
from tbmem.model.evidence import Conclusion, Suspicion
from tbmem.model.finding import Evidence, Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_signed

_CAPACITY_SEVERITY = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_CAPACITY_WORDS = ("memory is tight", "memory is nearly full", "memory is about to run out")


def leak(sample: MemorySample, growth: Growth) -> Finding:
    """Memory is kept from step to step."""
    left = steps_left(sample, growth.bytes_per_step)
    message = (
        f"memory grows by {format_bytes(growth.bytes_per_step)} per step since step {growth.first_step}"
        f" ({format_signed(growth.bytes)} by step {growth.last_step}, and never falls back)"
    )
    if left is not None:
        message += f" · full in about {left:,} steps".replace(",", " ")
    evidence = {
        "bytes_per_step": round(growth.bytes_per_step),
        "growth_bytes": growth.bytes,
        "floor_first_bytes": growth.base,
        "floor_last_bytes": growth.level,
        "steps_left": left,
        "known_by": f"the lowest levels of {KEPT} consecutive blocks of {growth.block} steps climb",
        "holder": None,
    }
    return _finding(FindingKind.LEAK, Severity.CRITICAL, sample, message, evidence, first_step=growth.first_step)


def suspect(sample: MemorySample, suspicion: Suspicion) -> Finding:
    """Growth that may be a leak."""
    message = (
        f"{suspicion.channel.value} memory grows by {format_bytes(suspicion.bytes_per_step)} per step"
        f" since step {suspicion.first_step}: it may be a leak"
    )
    return _finding(
        FindingKind.SUSPECT, Severity.INFO, sample, message, _numbers(suspicion), first_step=suspicion.first_step
    )


def dismissed(sample: MemorySample, suspicion: Suspicion, conclusion: Conclusion) -> Finding:
    """The evidence has cleared a suspicion."""
    evidence = {**_numbers(suspicion), **conclusion.evidence, "reason": conclusion.reason}
    return _finding(
        FindingKind.DISMISSED, Severity.INFO, sample, conclusion.reason, evidence, first_step=suspicion.first_step
    )


def confirmed(sample: MemorySample, suspicion: Suspicion, conclusion: Conclusion) -> Finding:
    """The evidence has confirmed a suspicion."""
    message = (
        f"{format_signed(round(suspicion.bytes_per_step))}/step since step {suspicion.first_step} · {conclusion.reason}"
    )
    evidence = {
        **_numbers(suspicion),
        "reason": conclusion.reason,
        "cause": conclusion.cause,
        "share": conclusion.share,
        **conclusion.evidence,
    }
    return _finding(FindingKind.LEAK, Severity.CRITICAL, sample, message, evidence, first_step=suspicion.first_step)


def _numbers(suspicion: Suspicion) -> dict[str, object]:
    return {
        "channel": suspicion.channel.value,
        "bytes_per_step": round(suspicion.bytes_per_step),
        "growth_bytes": suspicion.growth,
        "floor_first_bytes": suspicion.base,
        "floor_last_bytes": suspicion.level,
    }


def fallen_back(sample: MemorySample) -> Finding:
    """A leak that was reported is taken back."""
    message = "the growth reported before has fallen back: something was released, it was no leak"
    evidence = {"allocated_bytes": sample.allocated}
    return _finding(FindingKind.GROWING, Severity.INFO, sample, message, evidence, first_step=sample.step)


def ended(sample: MemorySample) -> Finding:
    """A leak that was reported has stopped growing."""
    message = (
        f"the growth reported before has ended: memory stays at {format_bytes(sample.allocated or 0)};"
        " something has filled up, it is no leak so far"
    )
    evidence = {"allocated_bytes": sample.allocated}
    return _finding(FindingKind.GROWING, Severity.INFO, sample, message, evidence, first_step=sample.step)


def spike(sample: MemorySample, jump: Jump) -> Finding:
    """One step, or a few, needed far more than the others."""
    height = jump.peak - jump.usual
    word = "reached" if sample.host_peak_rss is None or sample.device != "cpu" else "needed"
    message = (
        f"step {jump.first_step} {word} {format_bytes(jump.peak)},"
        f" {format_signed(height)} above the usual {format_bytes(jump.usual)}"
    )
    return _of_jump(FindingKind.SPIKE, Severity.WARNING, sample, jump, message)


def level_shift(sample: MemorySample, jump: Jump) -> Finding:
    """Steps need more than before, for good."""
    height = jump.peak - jump.usual
    message = (
        f"since step {jump.first_step} each step needs {format_signed(height)} more"
        f" ({format_bytes(jump.usual)} before, {format_bytes(jump.peak)} now)"
    )
    return _of_jump(FindingKind.LEVEL_SHIFT, Severity.INFO, sample, jump, message)


def near_capacity(sample: MemorySample, percent: float, level: int) -> Finding:
    """A threshold of the capacity was passed: ``level`` 1 is tight, 2 nearly full, 3 about to run out."""
    place = "the host's memory" if sample.device == "cpu" else "the device"
    total = format_bytes(sample.device_total or 0)
    message = f"{_CAPACITY_WORDS[level - 1]}: {percent:.1f} % of {place} in use ({total} in all)"
    evidence = {"used_percent": round(percent, 2), "device_total_bytes": sample.device_total}
    severity = _CAPACITY_SEVERITY[level - 1]
    return _finding(FindingKind.NEAR_CAPACITY, severity, sample, message, evidence, first_step=sample.step)


def stable(sample: MemorySample, lowest: int, highest: int, judged: int) -> Finding:
    """Nothing is wrong."""
    message = f"stable between {format_bytes(lowest)} and {format_bytes(highest)} over {judged} judged steps"
    evidence = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
    return _finding(FindingKind.STABLE, Severity.INFO, sample, message, evidence, first_step=1)


def too_early(sample: MemorySample, judged: int, enough: int) -> Finding:
    """Too few steps were judged for a verdict."""
    message = f"too early to tell: {judged} of {enough} steps judged"
    return _finding(FindingKind.WARMUP, Severity.INFO, sample, message, {"judged_steps": judged}, first_step=1)


def out_of_memory(step: int, error: BaseException) -> Finding:
    """The loop was ended by an error that says that memory ran out."""
    reason = " ".join(str(error).split()) or "no memory left"
    return Finding(
        kind=FindingKind.OOM,
        severity=Severity.CRITICAL,
        device="",
        first_step=step,
        last_step=step,
        message=f"step {step} ran out of memory: {reason}",
        evidence={"error": type(error).__name__},
        advice=ADVICE[FindingKind.OOM],
    )


def no_steps() -> Finding:
    """Not one step was seen."""
    return Finding(
        kind=FindingKind.WARMUP,
        severity=Severity.INFO,
        device="",
        first_step=0,
        last_step=0,
        message="no step was seen",
    )


def _of_jump(kind: FindingKind, severity: Severity, sample: MemorySample, jump: Jump, message: str) -> Finding:
    evidence = {
        "peak_bytes": jump.peak,
        "usual_bytes": jump.usual,
        "height_bytes": jump.peak - jump.usual,
    }
    return _finding(kind, severity, sample, message, evidence, first_step=jump.first_step, last_step=jump.last_step)


def _finding(
    kind: FindingKind,
    severity: Severity,
    sample: MemorySample,
    message: str,
    evidence: Evidence,
    *,
    first_step: int,
    last_step: int | None = None,
) -> Finding:
    return Finding(
        kind=kind,
        severity=severity,
        device=sample.device,
        rank=sample.rank,
        first_step=first_step,
        last_step=sample.step if last_step is None else last_step,
        message=message,
        evidence=evidence,
        advice=ADVICE.get(kind, ""),
    )
