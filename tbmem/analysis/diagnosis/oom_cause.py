"""Reasons why a request for memory failed, from what was known at that moment."""

from __future__ import annotations

from collections.abc import Sequence

from tbmem.analysis.diagnosis.advice import ADVICE
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.oom import CGROUP, MACHINE, AllocatorUsage, Cause, OomEvent, Reason
from tbmem.units import GIB, format_bytes

_CONTEXT = 3 * GIB // 2
"""Bytes that CUDA's context and its kernels take of a device at most: less is not attributed to other processes."""
_SMALL = 0.05  # share of the capacity below which a cause that is not enough by itself is not reported
_ON_THE_HOST = {channel.value for channel in (Channel.HOST, Channel.HEAP, Channel.WORKERS)}
"""Channels whose growth takes the host's memory, whatever the device."""
_OTHERS_ADVICE = (
    "list the processes with nvidia-smi (or ps): a forgotten process, another rank on the same device; give each"
    " rank its own device"
)
_SHAPE_ADVICE = "check the shape of the tensor that is made there"
_LIMIT_ADVICE = {
    MACHINE: "a smaller batch, shorter sequences, fewer DataLoader workers or activation checkpointing need less",
    CGROUP: "give the container or the job more memory (docker --memory, --mem of the scheduler), or fewer workers",
    "RLIMIT_AS": "raise the limit of the address space (ulimit -v)",
    "RLIMIT_DATA": "raise the limit of the data segment (ulimit -d)",
}


def reasons_of(shortage: OomEvent, findings: Sequence[Finding] = ()) -> tuple[Reason, ...]:
    """Why a request did not fit, the most important reason first; of the findings, leaks of the same device count.

    A cause without which the request would have fitted comes first: a leak, then fragmentation, then other processes.
    Where there is none, the capacity is why, and what else took a good part of it follows; near a limit, where nothing
    has failed yet, a leak that holds most of what is in use is why.
    """
    reasons = [*_leaks(shortage, findings), *_fragmentation(shortage), *_others(shortage)]
    enough = [reason for reason in reasons if reason.enough]
    total = shortage.limits[0].total if shortage.limits else 0
    partly = [reason for reason in reasons if not reason.enough and reason.bytes >= _SMALL * total]
    is_too_large = bool(shortage.limits) and (shortage.requested or 0) > total
    if enough and not is_too_large:
        return (*enough, *partly)
    used = _in_use(shortage)
    mostly = [each for each in partly if shortage.only_near and each.cause is Cause.LEAK and each.bytes >= used / 2]
    return (*mostly, _capacity(shortage, is_too_large), *(each for each in partly if each not in mostly))


def _in_use(shortage: OomEvent) -> int:
    """Bytes in use under the tightest limit; under one of addresses, which count once asked for, the resident ones."""
    if not shortage.limits:
        return 0
    tightest = shortage.limits[0]
    used, resident = tightest.total - tightest.free, shortage.process
    return min(used, resident) if resident is not None and tightest.counts_addresses else used


def _leaks(shortage: OomEvent, findings: Sequence[Finding]) -> list[Reason]:
    """The leak that took most, if one was reported and not retracted since."""
    standing: dict[str, Finding] = {}
    flagged: dict[str, int] = {}  # the step in which it was reported first: later reports have newer figures
    for finding in findings:
        channel = str(finding.evidence.get("channel", ""))
        if ("cpu" if channel in _ON_THE_HOST else finding.device) != shortage.device:
            continue
        if finding.kind is FindingKind.LEAK:
            standing[channel] = finding
            flagged.setdefault(channel, finding.last_step)
        elif finding.kind is FindingKind.GROWING:
            standing.pop(channel, None)
            flagged.pop(channel, None)
    if not standing:
        return []
    channel, worst = max(standing.items(), key=lambda pair: _taken(pair[1], shortage.step))
    taken = _taken(worst, shortage.step)
    holder = worst.evidence.get("holder")
    held = f", held by {holder}" if isinstance(holder, str) and holder else ""
    since = f"about {format_bytes(taken)} since step {worst.first_step}"
    text = f"a leak was flagged at step {flagged[channel]}: {since}{held}"
    # of a leak that nobody had time to look into: the sentence is also shown without the report
    advice = worst.advice if held else f"what holds most, listed in the report, may be what grows; {worst.advice}"
    return [_reason(Cause.LEAK, taken, shortage, text, advice)]


def _taken(finding: Finding, step: int) -> int:
    """What a leak had taken by a step, if it went on as before."""
    rate = finding.evidence.get("bytes_per_step") or 0
    grown = finding.evidence.get("growth_bytes") or 0
    return max(int(grown), int(rate * max(step - finding.first_step, 0)))


def _fragmentation(shortage: OomEvent) -> list[Reason]:
    """Inactive blocks that could not serve the request, though there was enough of them."""
    pieces = shortage.pieces
    if pieces is None or not pieces.free:
        return []
    largest, requested = pieces.largest_free, shortage.requested
    text = f"{format_bytes(pieces.free)} were reserved and free"
    if pieces.fragmented:
        text += f", {format_bytes(pieces.fragmented)} of it fragmented, in gaps between used blocks"
    if largest is not None and requested is not None and largest >= requested:
        text += f"; the largest block ({format_bytes(largest)}) belongs to another stream or pool"
    elif largest is not None:
        text += f"; the largest block is {format_bytes(largest)}"
    return [_reason(Cause.FRAGMENTATION, pieces.free, shortage, text, ADVICE[FindingKind.FRAGMENTATION])]


def _others(shortage: OomEvent) -> list[Reason]:
    """What other processes use of the device, or the machine."""
    total, free, process = shortage.device_total, shortage.device_free, shortage.process
    if total is None or free is None or process is None:
        return []
    on_host = shortage.device == "cpu"
    if on_host and shortage.limits and shortage.limits[0].name != MACHINE:
        return []
    others = total - free - process
    if others <= (_SMALL * total if on_host else _CONTEXT):
        return []
    who = "they" if on_host else "they and CUDA's own contexts"
    text = f"{who} hold {format_bytes(others)} of {'the machine' if on_host else 'the device'}"
    return [_reason(Cause.OTHER_PROCESSES, others, shortage, text, _OTHERS_ADVICE)]


def _capacity(shortage: OomEvent, is_too_large: bool) -> Reason:
    limit = shortage.limits[0] if shortage.limits else None
    if limit is None:
        text, advice = "live memory and the request exceed the capacity", ADVICE[FindingKind.OOM]
        return Reason(cause=Cause.CAPACITY, bytes=0, enough=False, text=text, advice=advice)
    request = "the request" if shortage.requested is None else f"{format_bytes(shortage.requested)} more"
    name, total = f"the {limit.name}" if limit.name == CGROUP else limit.name, format_bytes(limit.total)
    if is_too_large:
        text = f"the request alone ({format_bytes(shortage.requested or 0)}) is larger than {name} ({total})"
    else:
        used = format_bytes(limit.total - limit.free)
        text = f"{used} of {name}'s {total} are in use" + ("" if shortage.only_near else f"; {request} does not fit")
    advice = _LIMIT_ADVICE.get(limit.name, ADVICE[FindingKind.OOM])
    if is_too_large:
        advice = f"{_SHAPE_ADVICE}; {advice}"
    return Reason(cause=Cause.CAPACITY, bytes=limit.free, enough=False, text=text, advice=advice)


def _reason(cause: Cause, size: int, shortage: OomEvent, text: str, advice: str) -> Reason:
    """A reason, with whether the request would have fitted without it."""
    free, requested = shortage.free, shortage.requested
    enough = requested is not None and free is not None and free + size >= requested
    return Reason(cause=cause, bytes=size, enough=enough, text=text, advice=advice)


def pieces_without_blocks(reserved: int, active: int, split: int) -> AllocatorUsage:
    """The pieces as an allocator's counters alone show them, in bytes: the largest free block is not known."""
    free = max(reserved - active, 0)
    fragmented = min(split, free)
    return AllocatorUsage(reserved=reserved, active=active, cached=free - fragmented, fragmented=fragmented)
