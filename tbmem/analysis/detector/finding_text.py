"""Findings of the detector: their sentences, numbers and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tbmem.analysis.detector.forecast import Forecast, resident_reason
from tbmem.analysis.detector.spike_test import Excursion, ExcursionEvent
from tbmem.analysis.detector.trend import since
from tbmem.analysis.diagnosis.advice import (
    ADVICE,
    ADVICE_ON_EVALUATION,
    ADVICE_ON_UNSHARDED,
    LEAK_IN_WORKERS,
    recording_of,
)
from tbmem.model.evidence import (
    Channel,
    Conclusion,
    LineSource,
    Outcome,
    RunningAt,
    Suspicion,
    WorkerCode,
)
from tbmem.model.finding import Facts, Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_count, format_duration, format_range, format_signed

_UNKNOWN = RunningAt()
_NO_WORKERS = WorkerCode()
_SHOWN_MEMBERS = 3  # steps of a period that are named, the last ones
_ADDITIONS = 2  # lines of data sets that are named

_SUBJECTS = {
    Channel.ALLOCATED: "memory",
    Channel.PEAK: "the peak",
    Channel.RESERVED: "reserved memory",
    Channel.HOST: "the resident memory of the process",
    Channel.HEAP: "the process's memory on the host",
    Channel.WORKERS: "the private memory of the child processes",
}
_PHASES = {
    None: (None, ""),
    True: ("training", ""),
    False: ("no optimizer step", " (no optimizer stepped in it: validation, or the middle of an accumulation)"),
}
"""Kind of a step, for programs and in a sentence, by whether an optimizer stepped in it."""
_EVALUATION = "evaluation", " (in an evaluation: the model was in eval mode)"
"""The same of a step whose peak was in a call of a module that trains at other times."""
_MANY_TIMES = 10  # times the usual from which on a height is not given in per cent
_STANDS, _STANDS_STEPS = 0.5, 50  # of its length, and steps, for which growth that stands still is said to do so
_NEAR_THE_PEAK, _FOLLOWED = 0.8, 0.4
"""Parts of a spike's height from which on what looks have seen it allocate is about it: in general, and where no long
part of the step is unseen. What the resident peak is beyond it are holes in malloc's heap then: tensors of tens of
mebibytes are aligned, so that one does not fit into the hole that another of its size has left."""
_AT_ONCE = 0.1  # part of the growth from which on what came with a single rise is mentioned
PART_OF_RATE = {"alive_bytes_per_step", "heap_bytes_per_step"}
"""Evidence of leaks on the CPU of whose rate malloc shows a part: what is alive, or in malloc's heap."""
_PERIOD_OVER = 1.5  # of a period's length without one more, from which on it is said to be over
_FAR = 100_000_000  # steps beyond which a forecast is not mentioned


def leak(
    sample: MemorySample,
    seen: Suspicion,
    conclusion: Conclusion | None,
    ahead: Forecast | None,
    known_by: str,
    *,
    alive: Suspicion | None = None,
    is_held: bool = False,
    in_workers: WorkerCode = _NO_WORKERS,
) -> Finding:
    """Memory is kept from step to step; ``known_by`` says what has shown the growth.

    ``alive``: the growth of what is alive, where it makes the resident memory grow by more, which ``seen`` is then.
    ``is_held``: ``seen`` is what the holder gains, of which malloc's heap, that is ``alive``, lacks most.
    ``in_workers``: where the child processes are DataLoader workers, what they run.
    """
    subject = "" if seen.channel is Channel.ALLOCATED else f"{_SUBJECTS[seen.channel]} "
    subject = subject if alive is None or is_held else f"{_SUBJECTS[Channel.HOST]} "
    rate = f"{format_signed(round(seen.bytes_per_step))}/step {_since(seen)}"
    at_once = f", {format_bytes(seen.at_once)} of it at once" if seen.at_once > _AT_ONCE * seen.growth else ""
    grown = f"{_grown(seen)} by step {seen.last_step}{at_once}"
    explained = seen if alive is None or is_held else alive
    share = None if conclusion is None else conclusion.share_of(explained.bytes_per_step)
    if alive is None or is_held:
        parts = [f"{subject}{rate} ({grown}{_explained(share, 'the growth')})"]
        if alive is not None:
            parts.append(
                f"{format_signed(round(alive.bytes_per_step))}/step of it is in malloc's heap, in which Python's small"
                " objects do not lie"
            )
    else:  # a holder explains what is alive
        parts = [
            f"{subject}{rate} ({grown})",
            f"{format_signed(round(alive.bytes_per_step))}/step of it is alive{_explained(share, 'that')}:"
            " what is kept lies between freed blocks, which malloc then cannot return",
        ]
    if conclusion is None:
        parts += _place(seen, in_workers) or ["no evidence was collected: the line that holds it is not known"]
    elif conclusion.outcome is Outcome.OPEN:
        parts.append(f"investigated without a result: {conclusion.reason}")
    else:
        parts += [text for text in (conclusion.cause, conclusion.reason) if text]
    if ahead is not None and ahead.steps < _FAR:
        parts.append(_out_of_memory(ahead))
    evidence = {**_numbers(seen), **_forecast_numbers(ahead), "known_by": known_by, "holder": None}
    if alive is not None:
        evidence["heap_bytes_per_step" if is_held else "alive_bytes_per_step"] = round(alive.bytes_per_step)
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
    elif holder is None:
        reason = "most of the growth is free again"
        end = "has fallen back: the memory was released, it was not a leak"
    else:
        reason = "most of the growth is free again"
        end = f"has fallen back: {_grown(seen)} were kept until now and are free again · {holder.reason}"
    message = f"the growth of {_SUBJECTS[seen.channel]} reported before {end}"
    evidence = {**_numbers(seen), "reason": reason, "allocated_bytes": sample.allocated}
    if holder is None or not fell:
        return make_finding(FindingKind.GROWING, sample, message, evidence, sample.step)
    evidence |= {"cause": holder.cause, **holder.evidence}
    return make_finding(FindingKind.GROWING, sample, message, evidence, sample.step, advice=holder.advice)


def growing(
    sample: MemorySample, seen: Suspicion, conclusion: Conclusion | None, in_workers: WorkerCode = _NO_WORKERS
) -> Finding:
    """Memory grows because the workload does, or it is too early to call it a leak."""
    is_dismissed = conclusion is not None and conclusion.outcome is Outcome.DISMISSED
    reason = conclusion.reason if conclusion is not None and is_dismissed else "not long enough to call it a leak"
    growth = f"{_SUBJECTS[seen.channel]} grows by {format_bytes(seen.bytes_per_step)} per step"
    so_far = f"{growth} {_since(seen)} ({_grown(seen)} so far)"
    still = sample.step - seen.last_step
    stands = still >= max(_STANDS * (seen.last_step - seen.first_step), _STANDS_STEPS)
    ended = (f"it has not gone on since step {seen.last_step}",) if stands else ()
    message = " · ".join((so_far, *ended, reason, *_place(seen, in_workers)))
    evidence = {**_numbers(seen), **({} if conclusion is None else conclusion.evidence)}
    evidence |= {**_additions_facts(seen, in_workers), **({"ended_step": seen.last_step} if stands else {})}
    return make_finding(FindingKind.GROWING, sample, message, evidence, seen.began)


def spike(sample: MemorySample, event: ExcursionEvent, running: RunningAt = _UNKNOWN) -> Finding:
    """One step, or a few, needed more; ``running`` was at the peak. An evaluation that does is no problem as such."""
    phase, note = _EVALUATION if running.is_evaluation else _PHASES[event.updated]
    channel, excursion = event.shown
    allocated = _allocated(channel, excursion, running)
    if allocated:
        excursion = replace(excursion, may_be_more=0)
    first, last = excursion.first_step, excursion.last_step
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    level = _level(channel, excursion)
    # what the resident peak shows of it depends on what malloc had kept free
    known = f"allocated at least {format_bytes(allocated)}" if allocated else ""
    if excursion.kept:
        needed = known or f"needed {format_signed(excursion.height)} more than usual"
        reached = f"it reached {level}, the usual is {format_bytes(excursion.usual)}"
        message = f"{steps}{note} {needed}{_kept(excursion)}: {reached}"
    else:
        verb = f"{known}{' and ' * bool(known)}" + ("held" if channel is Channel.ALLOCATED else "reached")
        message = f"{steps}{note} {verb} {level}, {_above_usual(excursion)}{_kept(excursion)}"
    file, sources = excursion.confirmation
    message += _held_after(event) + _left_out(excursion)
    # a recording names what the step held, better than what was running when a look at the stack came
    message += f" · {sources}" if sources.largest else _running(running)
    shows = "tbmem analyze shows what it holds"
    recording = f"another run records it with {recording_of(first)}, and {shows}"
    general = ADVICE_ON_EVALUATION if running.is_evaluation else ADVICE[FindingKind.SPIKE]
    sharded = () if running.is_evaluation or sample.device == "cpu" else (ADVICE_ON_UNSHARDED,)
    advice = "; ".join((general, *sharded, shows if file else recording))
    lines = sources.to_evidence(file) if sources.largest else _line_facts(running)
    facts: dict[str, Any] = {"phase": phase, **_held_facts(event), **lines}
    facts |= {"allocated_bytes": allocated} if allocated else {}
    severity = Severity.INFO if running.is_evaluation else Severity.WARNING
    return _of_excursion(
        FindingKind.SPIKE, sample, channel, excursion, message, severity=severity, advice=advice, **facts
    )


def level_shift(sample: MemorySample, channel: Channel, excursion: Excursion, running: RunningAt = _UNKNOWN) -> Finding:
    """Steps need more than before, for good; ``running`` was at the first peak of these."""
    verb = "holds" if channel is Channel.ALLOCATED else "needs"
    more = f"since step {excursion.first_step} each step {verb} {format_signed(excursion.height)} more"
    levels = f"{format_bytes(excursion.usual)} before, {_level(channel, excursion)} now{_kept(excursion)}"
    message = f"{more} ({levels}){_running(running)}"
    return _of_excursion(FindingKind.LEVEL_SHIFT, sample, channel, excursion, message, **_line_facts(running))


def periodic(
    sample: MemorySample, event: ExcursionEvent, running: RunningAt = _UNKNOWN, last: RunningAt = _UNKNOWN
) -> Finding:
    """What looked like a spike recurs with a period; ``running`` was at its highest peak, ``last`` at the last one."""
    channel, excursion = event.shown
    allocated = _allocated(channel, excursion, last)
    message = (
        f"every {excursion.period} steps ({', '.join(map(str, excursion.members[-_SHOWN_MEMBERS:]))}) memory reaches"
        f" {_level(channel, excursion)},"
        f" {_above_usual(excursion)}{_kept(excursion)}{_held_after(event)}: periodic, as with validation or checkpoints"
        f"{_running(running)}"
    )
    period: dict[str, Any] = {"period_steps": excursion.period, "member_steps": list(excursion.members)}
    period |= {**_held_facts(event), **_line_facts(running), **({"allocated_bytes": allocated} if allocated else {})}
    return _of_excursion(FindingKind.PERIODIC, sample, channel, excursion, message, **period)


def _level(channel: Channel, excursion: Excursion) -> str:
    """The highest level, by the name under which the screens show it."""
    resident = "resident " if excursion.kept is not None else ""
    name = "" if channel is Channel.ALLOCATED else f"a {resident}peak of "
    return f"{name}{format_bytes(excursion.peak)}"


def _above_usual(excursion: Excursion) -> str:
    """``'+33.00 GiB (73 %) above the usual 45.00 GiB'``."""
    height, usual = excursion.height, excursion.usual
    # of next to nothing a percentage says nothing
    share = f" ({100 * height / usual:.0f} %)" if height < _MANY_TIMES * usual else ""
    return f"{format_signed(height)}{share} above the usual {format_bytes(usual)}"


def _kept(excursion: Excursion) -> str:
    """What of the height the resident peak does not show, as it lay in memory that was free, and what more may have."""
    kept = f", {format_bytes(excursion.kept)} of it in memory that malloc had kept free" if excursion.kept else ""
    more = excursion.may_be_more
    return kept + (f", and up to {format_bytes(more)} more in what malloc has kept of earlier steps" if more else "")


def _held_after(event: ExcursionEvent) -> str:
    """``', +52.79 MiB of it still held at its end'``: of a resident peak, what the step has not freed again."""
    return f", {format_signed(event.excursion.height)} of it still held at its end" if event.resident else ""


def _left_out(excursion: Excursion) -> str:
    """Of a step that was recorded: what of its peak is not the program's."""
    own = excursion.left_out
    return "" if not own else f", without {format_bytes(own)} that tbmem had added by then"


def _allocated(channel: Channel, excursion: Excursion, at: RunningAt) -> int:
    """Bytes that looks have seen allocated in the steps of a resident peak; 0 where none came near it."""
    seen, part = at.allocated or 0, _FOLLOWED if at.is_followed else _NEAR_THE_PEAK
    return seen if channel is Channel.HOST and seen >= part * excursion.height else 0


def _held_facts(event: ExcursionEvent) -> dict[str, int]:
    return {"held_bytes": event.excursion.height} if event.resident else {}


def _running(at: RunningAt) -> str:
    """``' · highest in softmax at main.py:26  x = F.softmax(x) (main > Net.forward)'``: what ran, and for whom."""
    if not at.lines:
        return ""
    calls = " > ".join(line.function for line in reversed(at.lines) if line.function and line.function != "<module>")
    operator = f"in {at.operator} " if at.operator else ""
    return f" · highest {operator}at {at.lines[0]}" + (f" ({calls})" if calls else "")


def _line_facts(at: RunningAt) -> dict[str, Any]:
    if not at.lines:
        return {}
    known_by = "the program was at this line when its memory was highest"
    stack = [asdict(line) for line in at.lines]
    return {"line": stack[0], "stack": stack, "operator": at.operator, "known_by": known_by}


def _of_excursion(
    kind: FindingKind,
    sample: MemorySample,
    channel: Channel,
    excursion: Excursion,
    message: str,
    *,
    severity: Severity = Severity.INFO,
    advice: str = "",
    **others: Any,
) -> Finding:
    evidence = {
        "channel": channel.value,
        "peak_bytes": excursion.peak,
        "usual_bytes": excursion.usual,
        "height_bytes": excursion.height,
        **({"kept_free_bytes": excursion.kept} if excursion.kept else {}),
        **({"may_be_more_bytes": excursion.may_be_more} if excursion.may_be_more else {}),
        **({"left_out_bytes": excursion.left_out} if excursion.left_out is not None else {}),
        **others,
    }
    first, last = excursion.first_step, excursion.last_step
    return make_finding(kind, sample, message, evidence, first, last, severity=severity, advice=advice)


def stable(sample: MemorySample, lowest: int, highest: int, judged: int, noted: Finding | None) -> Finding:
    """No problem: the range of the levels in bytes over the evaluated steps; ``noted``: a period, or an evaluation."""
    message = f"stable at {format_range(lowest, highest)} over {judged} evaluated steps"
    evidence = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
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
    risen = f"rose from {format_bytes(lowest)} to {format_bytes(highest)} in {judged} evaluated steps"
    message = f"{risen} · too few to tell a leak from a warm-up"
    evidence = {"lowest_bytes": lowest, "highest_bytes": highest, "judged_steps": judged}
    return make_finding(FindingKind.WARMUP, sample, message, evidence, 1)


def no_steps() -> Finding:
    """Not one step was seen."""
    return make_finding(FindingKind.WARMUP, MemorySample(step=0, time=0.0, device=""), "no step was recorded", {}, 0)


def _since(seen: Suspicion) -> str:
    return since(seen.began, may_be_earlier=seen.may_be_earlier)


def _grown(seen: Suspicion) -> str:
    """``'+38.00 MiB'``, ``'+38.00 MiB in 38 steps, without 3 that were not evaluated,'`` where others lie between."""
    growth, others = format_signed(seen.growth), seen.last_step - seen.first_step - seen.judged_steps
    return f"{growth} in {seen.judged_steps} steps, without {others} that were not evaluated," if others else growth


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
