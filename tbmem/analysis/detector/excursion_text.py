"""Findings about spikes, periods and changes of level: their sentences, numbers and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from tbmem.analysis.detector.finding_text import make_finding
from tbmem.analysis.detector.spike_test import Excursion, ExcursionEvent
from tbmem.analysis.diagnosis.advice import ADVICE, ADVICE_ON_EVALUATION, ADVICE_ON_UNSHARDED, recording_of
from tbmem.model.evidence import Channel, RunningAt
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.units import format_bytes, format_signed

_UNKNOWN = RunningAt()
_SHOWN_MEMBERS = 3  # steps of a period that are named, the last ones
_PHASES = {
    None: (None, ""),
    True: ("training", ""),
    False: ("no optimizer step", " (no optimizer stepped in it: validation, or the middle of an accumulation)"),
}
"""Kind of a step, for programs and in a sentence, by whether an optimizer stepped in it."""
_EVALUATION = "evaluation", " (in an evaluation: the model was in eval mode)"
"""The same of a step whose peak was in a call of a module that trains at other times."""
_SHOWN = 0.04  # part of what a step needed from which on it is said that the resident peak does not show it
_MANY_TIMES = 10  # times the usual from which on a height is not given in per cent
_NEAR_THE_PEAK, _FOLLOWED = 0.8, 0.4
"""Parts of a spike's height from which on what looks have seen it allocate is about it: in general, and where no long
part of the step is unseen. What the resident peak is beyond it are holes in malloc's heap then: tensors of tens of
mebibytes are aligned, so that one does not fit into the hole that another of its size has left."""


def spike(sample: MemorySample, event: ExcursionEvent, running: RunningAt = _UNKNOWN) -> Finding:
    """One step, or a few, needed more; ``running`` was at the peak. An evaluation that does is no problem as such."""
    phase, note = _EVALUATION if running.is_evaluation else _PHASES[event.updated]
    channel, excursion = event.shown
    seen = _seen(channel, excursion, running)
    if seen:
        excursion = replace(excursion, may_be_more=0)
    first, last = excursion.first_step, excursion.last_step
    steps = f"step {first}" if first == last else f"steps {first} to {last}"
    verb = "held" if channel is Channel.ALLOCATED else "reached"
    reached = f"{verb} {_level(channel, excursion)}, the usual is {format_bytes(excursion.usual)}"
    message = f"{steps}{note} {_needed(channel, excursion, seen)}{_held_after(event)}: it {reached}"
    file, sources = excursion.confirmation
    message += _left_out(excursion)
    # a recording names what the step held, better than what was running when a look at the stack came
    message += f" · {sources}" if sources.largest else _running(running)
    shows = "tbmem analyze shows what it holds"
    recording = f"another run records it with {recording_of(first)}, and {shows}"
    general = ADVICE_ON_EVALUATION if running.is_evaluation else ADVICE[FindingKind.SPIKE]
    sharded = () if running.is_evaluation or sample.device == "cpu" else (ADVICE_ON_UNSHARDED,)
    advice = "; ".join((general, *sharded, shows if file else recording))
    lines = sources.to_evidence(file) if sources.largest else _line_facts(running)
    facts: dict[str, Any] = {"phase": phase, **_held_facts(event), **seen, **lines}
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
    seen = _seen(channel, excursion, last)
    message = (
        f"every {excursion.period} steps ({', '.join(map(str, excursion.members[-_SHOWN_MEMBERS:]))}) memory reaches"
        f" {_level(channel, excursion)},"
        f" {_more(excursion.height, excursion.usual)} above the usual {format_bytes(excursion.usual)}"
        f"{_kept(excursion)}{_held_after(event)}: periodic, as with validation or checkpoints"
        f"{_running(running)}"
    )
    period: dict[str, Any] = {"period_steps": excursion.period, "member_steps": list(excursion.members)}
    period |= {"step_seconds": round(running.seconds, 3)} if running.seconds else {}
    period |= {**_held_facts(event), **seen, **_line_facts(running)}
    return _of_excursion(FindingKind.PERIODIC, sample, channel, excursion, message, **period)


def _level(channel: Channel, excursion: Excursion) -> str:
    """The highest level, by the name under which the screens show it."""
    resident = "resident " if excursion.kept is not None else ""
    name = "" if channel is Channel.ALLOCATED else f"a {resident}peak of "
    return f"{name}{format_bytes(excursion.peak)}"


def _needed(channel: Channel, excursion: Excursion, seen: Mapping[str, int]) -> str:
    """``'needed +33.00 GiB (73 %) more than usual'``; ``'needed at least ...'`` where it is what looks have seen.

    What the resident peak shows of a step depends on what malloc had kept free, and in which pieces.
    """
    if needed := seen.get("needed_bytes"):
        hidden = needed - (excursion.peak - excursion.usual)
        kept = _kept(replace(excursion, kept=hidden if hidden > _SHOWN * needed else None))
        return f"needed at least {_more(needed, excursion.usual)} more than usual{kept}"
    more = _more(excursion.height, excursion.usual)
    if channel is not Channel.HOST:
        return f"needed {more} more than usual"
    note = "" if excursion.confirmation.sources.largest else " (its tensors may have needed less)"
    return f"took {more} more memory than usual{_kept(excursion)}{note}"


def _more(height: int, usual: int) -> str:
    """``'+33.00 GiB (73 %)'``."""
    # of next to nothing a percentage says nothing
    share = f" ({100 * height / usual:.0f} %)" if height < _MANY_TIMES * usual else ""
    return f"{format_signed(height)}{share}"


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


def _seen(channel: Channel, excursion: Excursion, at: RunningAt) -> dict[str, int]:
    """What looks have seen the steps of a resident peak allocate, in bytes; empty where none came near it."""
    allocated, part = at.allocated or 0, _FOLLOWED if at.is_followed else _NEAR_THE_PEAK
    if channel is not Channel.HOST or not allocated or allocated < part * excursion.height:
        return {}
    needed = {"needed_bytes": at.needed} if at.needed is not None and at.needed > 0 else {}
    return {"allocated_bytes": allocated, **needed}


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
