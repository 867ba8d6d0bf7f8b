"""Findings about growth: their sentences, numbers and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tbmem.analysis.detector.finding_text import make_finding
from tbmem.analysis.detector.forecast import Forecast, resident_reason
from tbmem.analysis.detector.leak_growth import LeakGrowth
from tbmem.analysis.detector.trend import since
from tbmem.analysis.diagnosis.advice import LEAK_IN_WORKERS
from tbmem.model.evidence import Channel, Conclusion, LineSource, Outcome, Suspicion, WorkerCode
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_count, format_duration, format_signed

_NO_WORKERS = WorkerCode()
_ADDITIONS = 2  # lines of data sets that are named

_SUBJECTS = {
    Channel.ALLOCATED: "memory",
    Channel.PEAK: "the peak",
    Channel.RESERVED: "reserved memory",
    Channel.HOST: "the resident memory of the process",
    Channel.HEAP: "the process's memory on the host",
    Channel.WORKERS: "the private memory of the child processes",
}
_AT_ONCE = 0.1  # part of the growth from which on what came with a single rise is mentioned
PART_OF_RATE = {"alive_bytes_per_step", "heap_bytes_per_step"}
"""Evidence of leaks on the CPU of whose rate malloc shows a part: what is alive, or in malloc's heap."""
_LEAPT = 0.5  # part of the growth that is beyond its rate from which on it came at once, not from step to step
_FAR = 100_000_000  # steps beyond which a forecast is not mentioned


def leak(
    sample: MemorySample,
    growth: LeakGrowth,
    conclusion: Conclusion | None,
    known_by: str,
    *,
    in_workers: WorkerCode = _NO_WORKERS,
) -> Finding:
    """Memory is kept from step to step; ``known_by`` says what has shown the growth.

    ``in_workers``: where the child processes are DataLoader workers, what they run.
    """
    seen, ahead, part, is_held = growth
    subject = "" if seen.channel is Channel.ALLOCATED else f"{_SUBJECTS[seen.channel]} "
    subject = subject if part is None or is_held else f"{_SUBJECTS[Channel.HOST]} "
    rate = f"{format_signed(round(seen.bytes_per_step))}/step {_since(seen)}"
    at_once = f", {format_bytes(seen.at_once)} of it at once" if seen.at_once > _AT_ONCE * seen.growth else ""
    grown = f"{_grown(seen)} by step {seen.last_step}{at_once}"
    explained = seen if part is None or is_held else part
    share = None if conclusion is None else conclusion.share_of(explained.bytes_per_step)
    if part is None or is_held:
        parts = [f"{subject}{rate} ({grown}{_explained(share, 'the growth')})"]
        if part is not None:
            parts.append(
                f"{format_signed(round(part.bytes_per_step))}/step of it is in malloc's heap, in which Python's small"
                " objects do not lie"
            )
    else:  # a holder explains what is alive
        parts = [
            f"{subject}{rate} ({grown})",
            f"{format_signed(round(part.bytes_per_step))}/step of it is alive{_explained(share, 'that')}:"
            " what is kept lies between freed blocks, which malloc then cannot return",
        ]
    if conclusion is None:
        parts += _place(seen, in_workers) or ["no evidence was collected: the line that holds it is not known"]
    elif conclusion.outcome is Outcome.OPEN and conclusion.evidence.get("holder") is None:
        parts.append(f"investigated without a result: {conclusion.reason}")
    else:
        parts += [text for text in (conclusion.cause, conclusion.reason) if text]
    if ahead is not None and ahead.steps < _FAR:
        parts.append(_out_of_memory(ahead))
    evidence = {**_numbers(seen), **_forecast_numbers(ahead), "known_by": known_by, "holder": None}
    if part is not None:
        evidence["heap_bytes_per_step" if is_held else "alive_bytes_per_step"] = round(part.bytes_per_step)
    if conclusion is not None:
        evidence |= {"reason": conclusion.reason, "cause": conclusion.cause, "share": share}
        evidence |= conclusion.evidence
    evidence |= _additions_facts(seen, in_workers)
    advice = conclusion.advice if conclusion is not None else LEAK_IN_WORKERS * (seen.channel is Channel.WORKERS)
    severity, message = Severity.CRITICAL, " · ".join(parts)
    return make_finding(FindingKind.LEAK, sample, message, evidence, seen.began, severity=severity, advice=advice)


def _out_of_memory(ahead: Forecast) -> str:
    """``'out of memory in ~5 200 steps (16 min), as the resident memory grows by 426.00 KiB per step'``."""
    time = "" if ahead.seconds is None else f" ({format_duration(ahead.seconds)} at this speed)"
    return f"out of memory in ~{format_count(ahead.steps)} steps{time}{resident_reason(ahead.resident_rate)}"


def _explained(share: float | None, growth: str) -> str:
    """``', 98 % of the growth explained'``."""
    return "" if share is None else f", {100 * share:.0f} % of {growth} explained"


def _place(seen: Suspicion, in_workers: WorkerCode) -> list[str]:
    """Where growth of child processes is, into which nobody can look; empty for other growth."""
    unknown = "the line that holds it is not known"
    if seen.channel is not Channel.WORKERS:
        return []
    if not in_workers.methods:
        return [f"it is in child processes: {unknown}"]
    methods = ", ".join(f"{line.function} at {line}" for line in in_workers.methods)
    where = f"it is in a DataLoader worker, which calls {methods.rstrip(':')}"
    if not in_workers.additions:
        return [f"{where}: {unknown}"]
    lines = ", ".join(map(str, in_workers.additions[:_ADDITIONS]))
    return [where, f"its data set keeps what {lines} adds (read from the source: a worker's objects are not seen)"]


def _additions_facts(seen: Suspicion, in_workers: WorkerCode) -> dict[str, Any]:
    lines = [asdict(line) for line in in_workers.additions]
    if seen.channel is not Channel.WORKERS or not lines:
        return {}
    return {"line": lines[0], "lines": lines, "line_known_by": LineSource.READ.value}


def suspect(sample: MemorySample, seen: Suspicion) -> Finding:
    """Growth that may be a leak."""
    growth = f"{_SUBJECTS[seen.channel]} grows by {format_bytes(seen.bytes_per_step)} per step"
    message = f"{growth} {_since(seen)}: it may be a leak"
    return make_finding(FindingKind.SUSPECT, sample, message, _numbers(seen), seen.began)


def dismissed(sample: MemorySample, seen: Suspicion, reason: str, facts: Mapping[str, Any]) -> Finding:
    """A suspicion has come to nothing; ``reason`` is a clause, ``facts`` are what the evidence showed."""
    message = f"{_SUBJECTS[seen.channel]} grew by {format_signed(seen.growth)}: no leak, {reason}"
    evidence = {**_numbers(seen), "reason": reason, **facts}
    return make_finding(FindingKind.DISMISSED, sample, message, evidence, seen.began)


def retracted(sample: MemorySample, seen: Suspicion, conclusion: Conclusion | None, *, fell: bool) -> Finding:
    """A leak that was reported has ended: most of it is free again (``fell``), or it has stopped growing.

    What was held by a known object until then (a loss summed with its graph over an epoch) is named with it: each time
    it is held anew costs as much.
    """
    holder = conclusion if conclusion is not None and conclusion.outcome is Outcome.CONFIRMED else None
    if not fell:
        reason = "it has not gone on for as long as it lasted"
        end = f"has ended: it stays at {format_bytes(seen.level)}; so far it is not a leak"
        end += f" · {holder.reason}" if holder is not None else ""
    elif holder is None:
        reason = "most of the growth is free again"
        end = "has fallen back: the memory was released, it was not a leak"
    else:
        reason = "most of the growth is free again"
        end = f"has fallen back: {_grown(seen)} were kept until now and are free again · {holder.reason}"
    message = f"the growth of {_SUBJECTS[seen.channel]} reported before {end}"
    evidence = {**_numbers(seen), "reason": reason, "allocated_bytes": sample.allocated}
    if holder is None:
        return make_finding(FindingKind.GROWING, sample, message, evidence, sample.step)
    evidence |= {"cause": holder.cause, **holder.evidence}
    return make_finding(FindingKind.GROWING, sample, message, evidence, sample.step, advice=holder.advice)


def growing(
    sample: MemorySample,
    seen: Suspicion,
    conclusion: Conclusion | None,
    in_workers: WorkerCode = _NO_WORKERS,
    *,
    stands: bool = False,
) -> Finding:
    """Memory grows because the workload does, or it is too early to call it a leak; ``stands``: it has not gone on."""
    if seen.rises:
        grows, at_once = f"rose {'once' if seen.rises == 1 else f'{seen.rises} times'}", ""
    else:
        has_leapt = seen.growth - seen.bytes_per_step * seen.judged_steps > _LEAPT * seen.growth
        grows = "grew" if stands else f"grows by {format_bytes(seen.bytes_per_step)} per step"
        at_once = ", most of it at once" * has_leapt
    grown = _grown(seen).rstrip(",") if stands else f"{_grown(seen)} so far"
    ended = f" and has not gone on since step {seen.last_step}" if stands else ""
    told = f"{_SUBJECTS[seen.channel]} {grows} {_since(seen)} ({grown}{at_once}){ended}"
    message = " · ".join((told, *_reasons(seen, conclusion), *_place(seen, in_workers)))
    evidence = {**_numbers(seen), **({} if conclusion is None else conclusion.evidence)}
    evidence |= {**_additions_facts(seen, in_workers), **({"ended_step": seen.last_step} if stands else {})}
    return make_finding(FindingKind.GROWING, sample, message, evidence, seen.began)


def _reasons(seen: Suspicion, conclusion: Conclusion | None) -> list[str]:
    """Why growth is no leak."""
    if conclusion is None or conclusion.outcome is not Outcome.DISMISSED:
        return ["too few rises to call it a leak" if seen.rises else "not long enough to call it a leak"]
    is_late = conclusion.ends_at is not None and conclusion.ends_at < seen.last_step
    return [conclusion.reason, *[f"it fills more slowly than in step {format_count(conclusion.step)}"] * is_late]


def _since(seen: Suspicion) -> str:
    return since(seen.began, may_be_earlier=seen.may_be_earlier)


def _grown(seen: Suspicion) -> str:
    """``'+38.00 MiB'``, ``'+38.00 MiB in 38 evaluated steps of 41,'`` where others lie between."""
    growth, steps = format_signed(seen.growth), seen.last_step - seen.first_step
    return growth if steps == seen.judged_steps else f"{growth} in {seen.judged_steps} evaluated steps of {steps},"


def _numbers(suspicion: Suspicion) -> dict[str, Any]:
    return {
        "channel": suspicion.channel.value,
        "bytes_per_step": round(suspicion.bytes_per_step),
        "may_be_earlier": suspicion.may_be_earlier,
        "growth_bytes": suspicion.growth,
        "judged_steps": suspicion.judged_steps,
        "floor_first_bytes": suspicion.base,
        "floor_last_bytes": suspicion.level,
    }


def _forecast_numbers(ahead: Forecast | None) -> dict[str, Any]:
    if ahead is None:
        return {"steps_left": None}
    steps = {"steps_left": ahead.steps, "steps_left_low": ahead.steps_low, "steps_left_high": ahead.steps_high}
    seconds = None if ahead.seconds is None else round(ahead.seconds, 1)
    rate = {} if ahead.resident_rate is None else {"resident_bytes_per_step": round(ahead.resident_rate)}
    return {**steps, "seconds_left": seconds, **rate}
