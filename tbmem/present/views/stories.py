"""An out-of-memory error, a leak and a killed run as short lists: what happened and where, why, what helps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tbmem.analysis.detector.forecast import resident_reason
from tbmem.analysis.detector.trend import since
from tbmem.analysis.runs.run_status import RankState
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind
from tbmem.present.lines import device_label
from tbmem.units import format_bytes, format_count, format_duration, format_signed

_HOLDERS = 3
_AFTER_DEATH = (
    "read the end of the job's own output (a crash), dmesg (the kernel's out-of-memory killer) and the scheduler's"
    " messages (a limit of memory or time)"
)
_PLACES = {
    Channel.HOST.value: ("on the host", "of the process on the host"),
    Channel.HEAP.value: ("on the host", "of the process on the host"),
    Channel.WORKERS.value: ("in child processes", "of child processes, such as DataLoader workers"),
}
"""Of leaks beside an accelerator: where, in the title, and whose memory."""
Fact = tuple[str, str, str]
"""A name, a text, and a source line or nothing."""


def story_of(finding: Finding) -> dict[str, Any] | None:
    """The story of an out-of-memory error or a leak as JSON values; ``None`` for other findings.

    The log may be of another version or damaged: what is missing or of another type is left out.
    """
    evidence = finding.evidence
    if finding.kind is FindingKind.OOM:
        title, facts = f"Out of memory in step {finding.last_step}", [*_request(finding)]
        reasons = _dicts(evidence.get("reasons"))
        why = [_reason(reason) for reason in reasons]
        advice = [str(reason.get("advice", "")) for reason in reasons] or [finding.advice]
        holders = [_holder(holder, evidence.get("seen_bytes")) for holder in _dicts(evidence.get("holders"))[:_HOLDERS]]
    elif finding.kind is FindingKind.LEAK:
        where, _ = _place(finding)
        title, facts = f"Leak {where} {_since(finding)}".replace("  ", " "), [*_growth(finding)]
        why, advice, holders = [str(evidence.get("cause") or "")], [finding.advice], []
    else:
        return None
    files = evidence.get("files")
    return {
        "kind": finding.kind.value,
        "title": title,
        "rank": finding.rank,
        "device": finding.device,
        "facts": [list(fact) for fact in facts],
        "why": [text for text in why if text],
        "holders": holders,
        "advice": list(dict.fromkeys(text for text in advice if text)),
        "missing": _missing(evidence) if finding.kind is FindingKind.OOM else None,
        "snapshot": next((name for name in _strings(files) if name.endswith(".snapshot.pickle")), None),
    }


def _request(finding: Finding) -> Iterator[Fact]:
    """What was requested where, and what there was instead."""
    evidence, place = finding.evidence, device_label(finding.device)
    size = _number(evidence.get("requested_bytes"))
    yield (
        "requested",
        f"{'an unknown size' if size is None else format_bytes(size)} on {place}",
        str(evidence.get("line") or ""),
    )
    limits = _dicts(evidence.get("limits"))
    for limit in limits[:1]:
        free, total = _number(limit.get("free")), _number(limit.get("total"))
        if free is not None and total is not None:
            yield "free", f"{format_bytes(free)} of {format_bytes(total)} ({limit.get('name', 'the device')})", ""
    pieces = evidence.get("pieces")
    if isinstance(pieces, Mapping):
        sizes = {name: _number(pieces.get(name)) for name in ("active", "largest_free", "fragmented", "cached")}
        words = {"active": "in use", "largest_free": "largest gap", "fragmented": "fragmented", "cached": "cached"}
        known = [f"{words[name]} {format_bytes(value)}" for name, value in sizes.items() if value is not None]
        if known:
            yield "in the allocator", ", ".join(known), ""
    total, free = _number(evidence.get("device_total_bytes")), _number(evidence.get("device_free_bytes"))
    reserved = _number(pieces.get("reserved")) if isinstance(pieces, Mapping) else None
    if total is not None and free is not None and reserved is not None:
        yield "outside of it", f"{format_bytes(max(total - free - reserved, 0))} (CUDA's context, other processes)", ""


def _reason(reason: Mapping[str, Any]) -> str:
    cause = str(reason.get("cause", "")).replace("_", " ")
    sure = "; without it the request would have fitted" if reason.get("enough") is True else ""
    return f"{cause}: {reason.get('text', '')}{sure}"


def _missing(evidence: Mapping[str, Any]) -> int | None:
    """Bytes that were missing, if what the allocator had cached is counted as free."""
    size, free = _number(evidence.get("requested_bytes")), _number(evidence.get("free_bytes"))
    if size is None or free is None:
        return None
    pieces = evidence.get("pieces")
    cached = _number(pieces.get("cached")) if isinstance(pieces, Mapping) else None
    return max(int(size - free - (cached or 0)), 0)


def story_of_death(state: RankState) -> dict[str, Any]:
    """The story of a rank whose process is gone and has logged no end."""
    return {
        "kind": "died",
        "title": f"Killed or crashed after step {state.step}, the last in its log",
        "rank": state.rank,
        "device": next((device.device for device in state.devices), ""),
        "facts": [],
        "why": ["the process no longer exists and its log has no end, so no Python error ended it"],
        "holders": [],
        "advice": [_AFTER_DEATH],
        "missing": None,
        "snapshot": None,
    }


def _place(finding: Finding) -> tuple[str, str]:
    is_cpu = finding.device == "cpu" and finding.evidence.get("channel") != Channel.WORKERS.value
    return ("", "") if is_cpu else _PLACES.get(str(finding.evidence.get("channel")), ("", ""))


def _since(finding: Finding) -> str:
    return since(finding.first_step, may_be_earlier=finding.evidence.get("may_be_earlier") is True)


def _growth(finding: Finding) -> Iterator[Fact]:
    """Who keeps how much at which line, and until when there is room."""
    evidence = finding.evidence
    _, whose = _place(finding)
    if whose:
        yield "memory", whose, ""
    holder, line = evidence.get("holder"), evidence.get("line")
    if isinstance(holder, str) and holder:
        yield "held by", holder, ""
    if source_line(line):
        yield "line", "", source_line(line)
    rate = _number(evidence.get("bytes_per_step"))
    if rate is not None:
        share, alive = _number(evidence.get("share")), _number(evidence.get("alive_bytes_per_step"))
        # of resident memory that grows by more than is alive, a holder explains the part that is alive
        part = "" if alive is None else f", of which {format_signed(round(alive))} is alive"
        explained = "" if share is None else f"; the holder explains {100 * share:.0f} % of {'that' if part else 'it'}"
        yield "growth", f"{format_signed(round(rate))} per step {_since(finding)}{part}{explained}", ""
    steps, seconds = _number(evidence.get("steps_left")), _number(evidence.get("seconds_left"))
    if steps is not None:
        time = "" if seconds is None else f" ({format_duration(seconds)} at this speed)"
        faster = resident_reason(_number(evidence.get("resident_bytes_per_step")))
        yield "out of memory in", f"about {format_count(steps)} steps{time} after step {finding.last_step}{faster}", ""


def source_line(line: object) -> str:
    """The source line of a finding: ``'train.py:41  losses.append(loss)'``."""
    if not isinstance(line, Mapping) or "file" not in line:
        return ""
    name = str(line["file"]).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line.get('line', '?')}  {line.get('text', '')}".rstrip()


def _holder(holder: Mapping[str, Any], seen: object) -> dict[str, Any]:
    size, total = _number(holder.get("bytes")), _number(seen)
    return {
        "name": str(holder.get("name", "")),
        "bytes": size,
        "count": _number(holder.get("count")),
        "percent": None if size is None or not total else round(100 * size / total, 1),
        "line": next(iter(_strings(holder.get("lines"))), ""),
    }


def _number(value: object) -> float | int | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else None


def _dicts(values: object) -> list[Mapping[str, Any]]:
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, Sequence) else []


def _strings(values: object) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, Sequence) else []
