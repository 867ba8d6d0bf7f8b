"""Findings of the detector: their sentences, numbers and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tbmem.analysis.detector.feed import FragmentationEvent
from tbmem.analysis.detector.forecast import Forecast
from tbmem.analysis.detector.spike_test import Excursion
from tbmem.analysis.diagnosis.advice import ADVICE
from tbmem.model.evidence import Channel, Conclusion, Outcome, Suspicion
from tbmem.model.finding import Facts, Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_count, format_duration, format_range, format_share, format_signed

_CAPACITY_SEVERITY = (Severity.INFO, Severity.WARNING, Severity.CRITICAL)
_CAPACITY_WORDS = ("memory is tight", "memory is nearly full", "memory is about to run out")
_SUBJECTS = {
    Channel.ALLOCATED: "memory",
    Channel.PEAK: "the peak",
    Channel.RESERVED: "reserved memory",
    Channel.HOST: "the resident memory of the process",
    Channel.WORKERS: "the private memory of the child processes",
}
"""Name of a channel's series in a sentence."""
_PHASES = {
    None: "",
    True: " (a training step)",
    False: " (a step without an optimizer's: validation, or in the middle of an accumulation)",
}
"""Kind of a step, by whether an optimizer stepped in it."""
_MANY_TIMES = 10
"""Times the usual from which on a height is not given in per cent."""
_FAR = 100_000_000
"""Steps beyond which a forecast is not mentioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthFacts:
    """All that is known about growth."""

    suspicion: Suspicion
    """Where it began, how far it came, in which channel."""
    block: int
    """Judged steps of the blocks whose low-water marks climbed."""
    blocks: int
    """Number of these blocks."""
    conclusion: Conclusion | None = None
    """What the evidence says; ``None`` where none was taken."""
    forecast: Forecast | None = None


def leak(sample: MemorySample, facts: GrowthFacts) -> Finding:
    """Memory is kept from step to step."""
    seen, conclusion, ahead = facts.suspicion, facts.conclusion, facts.forecast
    subject = "" if seen.channel is Channel.ALLOCATED else f"{_SUBJECTS[seen.channel]} "
    parts = [
        f"{subject}{format_signed(round(seen.bytes_per_step))}/step since step {seen.first_step}"
        f" ({_grown(seen)} by step {seen.last_step}{_share(conclusion)})"
    ]
    if conclusion is None:
        parts.append("no evidence was taken: which line holds it is not known")
    elif conclusion.outcome is Outcome.OPEN:
        parts.append(f"looked into without an answer: {conclusion.reason}")
    else:
        parts += [text for text in (conclusion.cause, conclusion.reason) if text]
    if ahead is not None and ahead.steps < _FAR:
        time = "" if ahead.seconds is None else f" ({format_duration(ahead.seconds)})"
        parts.append(f"out of memory in ~{format_count(ahead.steps)} steps{time}")
    evidence = {
        **_numbers(seen),
        **_forecast_numbers(ahead),
        "known_by": f"the lowest levels of {facts.blocks} consecutive blocks of {facts.block} steps climb",
        "holder": None,
    }
    if conclusion is not None:
        evidence |= {"reason": conclusion.reason, "cause": conclusion.cause, "share": conclusion.share}
        evidence |= conclusion.evidence
    advice = conclusion.advice if conclusion is not None and conclusion.advice else ADVICE[FindingKind.LEAK]
    message = " · ".join(parts)
    return _finding(FindingKind.LEAK, Severity.CRITICAL, sample, message, evidence, seen.first_step, advice=advice)


def suspect(sample: MemorySample, suspicion: Suspicion) -> Finding:
    """Growth that may be a leak."""
    message = (
        f"{_SUBJECTS[suspicion.channel]} grows by {format_bytes(suspicion.bytes_per_step)} per step"
        f" since step {suspicion.first_step}: it may be a leak"
    )
    return _finding(FindingKind.SUSPECT, Severity.INFO, sample, message, _numbers(suspicion), suspicion.first_step)


def dismissed(sample: MemorySample, suspicion: Suspicion, reason: str, facts: Mapping[str, Any]) -> Finding:
    """A suspicion has come to nothing.

    Args:
        sample: The latest one.
        suspicion: The growth.
        reason: One clause: why it is no leak.
        facts: What the evidence showed.
    """
    message = f"{_SUBJECTS[suspicion.channel]} grew by {format_signed(suspicion.growth)}: no leak, {reason}"
    evidence = {**_numbers(suspicion), "reason": reason, **facts}
    return _finding(FindingKind.DISMISSED, Severity.INFO, sample, message, evidence, suspicion.first_step)


def retracted(sample: MemorySample, facts: GrowthFacts, *, fell: bool) -> Finding:
    """A leak that was reported is none: most of it is free again (``fell``), or it has stopped growing."""
    seen = facts.suspicion
    subject = _SUBJECTS[seen.channel]
    if fell:
        reason = "most of the growth is free again"
        message = f"the growth of {subject} reported before has fallen back: something was released, it was no leak"
    else:
        reason = "it has not gone on for as long as it lasted"
        message = (
            f"the growth of {subject} reported before has ended: it stays at {format_bytes(seen.level)};"
            " something has filled up, it is no leak so far"
        )
    evidence = {**_numbers(seen), "reason": reason, "allocated_bytes": sample.allocated}
    return _finding(FindingKind.GROWING, Severity.INFO, sample, message, evidence, sample.step)


def growing(sample: MemorySample, facts: GrowthFacts) -> Finding:
    """Memory grows because the workload does, or it is too early to call it a leak."""
    seen, conclusion = facts.suspicion, facts.conclusion
    is_dismissed = conclusion is not None and conclusion.outcome is Outcome.DISMISSED
    reason = conclusion.reason if conclusion is not None and is_dismissed else "not long enough to call it a leak"
    message = (
        f"{_SUBJECTS[seen.channel]} grows by {format_bytes(seen.bytes_per_step)} per step since step"
        f" {seen.first_step} ({_grown(seen)} so far) · {reason}"
    )
    evidence = {**_numbers(seen), **({} if conclusion is None else conclusion.evidence)}
    return _finding(FindingKind.GROWING, Severity.INFO, sample, message, evidence, seen.first_step)


def spike(sample: MemorySample, channel: Channel, excursion: Excursion, updated: bool | None = None) -> Finding:
    """One step, or a few, needed far more than the others.

    Args:
        sample: The latest one.
        channel: Where it was seen.
        excursion: The step, or the steps.
        updated: Whether an optimizer stepped in that step: what tells training from validation.
    """
    step, level = f"step {excursion.first_step}{_PHASES[updated]}", _level(channel, excursion)
    if excursion.kept:
        message = (
            f"{step} needed {format_signed(excursion.height)} more than usual{_kept(excursion)}:"
            f" it reached {level}, the usual is {format_bytes(excursion.usual)}"
        )
    else:
        verb = "held" if channel is Channel.ALLOCATED else "reached"
        message = f"{step} {verb} {level}, {_above_usual(excursion)}"
    phase = {None: None, True: "training", False: "no optimizer step"}[updated]
    return _of_excursion(FindingKind.SPIKE, Severity.WARNING, sample, channel, excursion, message, phase=phase)


def _level(channel: Channel, excursion: Excursion) -> str:
    """The highest level, by the name under which the screens show it."""
    if channel is Channel.ALLOCATED:
        return format_bytes(excursion.peak)
    resident = "resident " if excursion.kept is not None else ""
    return f"a {resident}peak of {format_bytes(excursion.peak)}"


def _above_usual(excursion: Excursion) -> str:
    """``'+33.00 GiB (73 %) above the usual 45.00 GiB'``."""
    height, usual = excursion.height, excursion.usual
    # of next to nothing a percentage says nothing
    share = f" ({100 * height / usual:.0f} %)" if height < _MANY_TIMES * usual else ""
    return f"{format_signed(height)}{share} above the usual {format_bytes(usual)}"


def _kept(excursion: Excursion) -> str:
    return f", {format_bytes(excursion.kept)} of it in memory that malloc had kept free" if excursion.kept else ""


def level_shift(sample: MemorySample, channel: Channel, excursion: Excursion) -> Finding:
    """Steps need more than before, for good."""
    verb = "holds" if channel is Channel.ALLOCATED else "needs"
    message = (
        f"since step {excursion.first_step} each step {verb} {format_signed(excursion.height)} more"
        f" ({format_bytes(excursion.usual)} before, {_level(channel, excursion)} now{_kept(excursion)})"
    )
    return _of_excursion(FindingKind.LEVEL_SHIFT, Severity.INFO, sample, channel, excursion, message)


def periodic(sample: MemorySample, channel: Channel, excursion: Excursion) -> Finding:
    """What looked like a spike recurs with a period."""
    message = (
        f"every {excursion.period} steps memory comes to {_level(channel, excursion)},"
        f" {_above_usual(excursion)}{_kept(excursion)}: a regular beat, as of validation or checkpoints"
    )
    period = {"period_steps": excursion.period, "member_steps": list(excursion.members)}
    return _of_excursion(FindingKind.PERIODIC, Severity.INFO, sample, channel, excursion, message, **period)


def fragmentation(sample: MemorySample, event: FragmentationEvent) -> Finding:
    """Free memory that cannot serve a request."""
    share = format_share(event.never_used, event.reserved)
    message = (
        f"{format_bytes(event.never_used)} ({share} that are reserved) were not in use even at the peak:"
        f" {format_bytes(event.fragmented)} are fragmented, in gaps between used blocks that fit no request"
    )
    evidence = {
        "channel": Channel.RESERVED.value,
        "never_used_bytes": event.never_used,
        "fragmented_bytes": event.fragmented,
        "reserved_bytes": event.reserved,
    }
    return _finding(FindingKind.FRAGMENTATION, Severity.WARNING, sample, message, evidence, sample.step)


def near_capacity(sample: MemorySample, percent: float, level: int) -> Finding:
    """A threshold of the capacity was passed: ``level`` 1 is tight, 2 nearly full, 3 about to run out."""
    place = "the host's memory" if sample.device == "cpu" else "the device"
    total = format_bytes(sample.device_total or 0)
    message = f"{_CAPACITY_WORDS[level - 1]}: {percent:.1f} % of {place} in use ({total} in all)"
    evidence = {"used_percent": round(percent, 2), "device_total_bytes": sample.device_total}
    severity = _CAPACITY_SEVERITY[level - 1]
    return _finding(FindingKind.NEAR_CAPACITY, severity, sample, message, evidence, sample.step)


def stable(sample: MemorySample, lowest: int, highest: int, judged: int, periodic: Finding | None = None) -> Finding:
    """Nothing is wrong.

    Args:
        sample: The latest one.
        lowest: Lowest level after a judged step, in bytes.
        highest: The highest.
        judged: Number of judged steps.
        periodic: What recurs with a period, if anything does.
    """
    message = f"stable at {format_range(lowest, highest)} over {judged} judged steps"
    evidence = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
    if periodic is not None:
        message += f" · {periodic.message}"
        evidence["period_steps"] = periodic.evidence["period_steps"]
    return _finding(FindingKind.STABLE, Severity.INFO, sample, message, evidence, 1)


def too_early(sample: MemorySample, judged: int, enough: int) -> Finding:
    """Too few steps were judged for a verdict."""
    message = f"too short to tell: {judged} of {enough} steps judged"
    return _finding(FindingKind.WARMUP, Severity.INFO, sample, message, {"judged_steps": judged}, 1)


def no_steps() -> Finding:
    """Not one step was seen."""
    kind, message = FindingKind.WARMUP, "no step was seen"
    return Finding(kind=kind, severity=Severity.INFO, device="", first_step=0, last_step=0, message=message)


def _grown(seen: Suspicion) -> str:
    """``'+38.00 MiB'``, ``'+38.00 MiB in 38 judged steps'`` where others lie between."""
    growth = format_signed(seen.growth)
    all_judged = seen.judged_steps == seen.last_step - seen.first_step
    return growth if all_judged else f"{growth} in {seen.judged_steps} judged steps"


def _share(conclusion: Conclusion | None) -> str:
    if conclusion is None or conclusion.share is None:
        return ""
    return f", {100 * conclusion.share:.0f} % of the growth explained"


def _numbers(suspicion: Suspicion) -> dict[str, Any]:
    return {
        "channel": suspicion.channel.value,
        "bytes_per_step": round(suspicion.bytes_per_step),
        "growth_bytes": suspicion.growth,
        "judged_steps": suspicion.judged_steps,
        "floor_first_bytes": suspicion.base,
        "floor_last_bytes": suspicion.level,
    }


def _forecast_numbers(ahead: Forecast | None) -> dict[str, Any]:
    if ahead is None:
        return {"steps_left": None}
    return {
        "steps_left": ahead.steps,
        "steps_left_low": ahead.steps_low,
        "steps_left_high": ahead.steps_high,
        "seconds_left": None if ahead.seconds is None else round(ahead.seconds, 1),
    }


def _of_excursion(
    kind: FindingKind,
    severity: Severity,
    sample: MemorySample,
    channel: Channel,
    excursion: Excursion,
    message: str,
    **others: Any,
) -> Finding:
    evidence = {
        "channel": channel.value,
        "peak_bytes": excursion.peak,
        "usual_bytes": excursion.usual,
        "height_bytes": excursion.height,
        **({"kept_free_bytes": excursion.kept} if excursion.kept else {}),
        **others,
    }
    first, last = excursion.first_step, excursion.last_step
    return _finding(kind, severity, sample, message, evidence, first, last_step=last)


def _finding(
    kind: FindingKind,
    severity: Severity,
    sample: MemorySample,
    message: str,
    evidence: Facts,
    first_step: int,
    *,
    last_step: int | None = None,
    advice: str | None = None,
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
        advice=ADVICE.get(kind, "") if advice is None else advice,
    )
