"""Explains a failed request or an out-of-memory exception in a OomReport.

Nothing is allocated on a device, and the search for live objects is limited to a second of a processor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tbmem.analysis.diagnosis.oom_cause import pieces_without_blocks, reasons_of
from tbmem.analysis.diagnosis.oom_holders import MOST, holdings_of, holdings_of_blocks
from tbmem.analysis.recordings.fragmentation import pieces_of
from tbmem.model.oom import AllocatorUsage, Limit, OomEvent, OomHolder, OomReport, RunContext
from tbmem.model.sample import MemorySample
from tbmem.runtime.oom.cuda_observer import FailedRequest
from tbmem.sources.counters.memory_limits import HostState, host_state
from tbmem.sources.program.ownership import asking_line, innermost_frame, raising_line, training_frame
from tbmem.sources.retainers.live_memory import LiveHolders, live_memory
from tbmem.sources.snapshot.reader import timeline_of_snapshot
from tbmem.sources.torch_state.out_of_memory import device_of, requested_bytes

_NO_STACKS = "no stacks were recorded: snapshot.history=run keeps the line of each block"
_NOT_ALL = "there are more objects than were examined: some names may be missing"


def device_report(request: FailedRequest, situation: RunContext, snapshot: Mapping[str, Any] | None) -> OomReport:
    """Report of a failed CUDA request, before the stack is unwound."""
    device = f"cuda:{request.device}"
    found = live_memory(training_frame())
    # the blocks of the snapshot, without its events
    segments = (snapshot or {}).get("segments")
    timeline = timeline_of_snapshot({"segments": segments}) if segments else None
    if timeline is None or device not in [entry.name for entry in timeline.devices]:
        return _report(_device_shortage(request, situation, None), situation, found)
    number = timeline.device_number(device)
    shortage = _device_shortage(request, situation, pieces_of(timeline, number))
    holdings = holdings_of_blocks(timeline, number, found.live, found.lines)
    return _report(shortage, situation, found, holdings, () if len(timeline.stacks) else (_NO_STACKS,))


def brief_device_report(request: FailedRequest, situation: RunContext) -> OomReport:
    """Report by the allocator and the counters alone, without holders; takes microseconds."""
    shortage = _device_shortage(request, situation, None)
    return OomReport(shortage=shortage, reasons=reasons_of(shortage, situation.findings))


def _device_shortage(request: FailedRequest, situation: RunContext, pieces: AllocatorUsage | None) -> OomEvent:
    device = f"cuda:{request.device}"
    sample = situation.last.get(device)
    pieces = pieces or _pieces(sample)
    total = sample.device_total if sample is not None and sample.device_total else request.allowed
    limits = [Limit(name="the device", total=total, free=request.free)]
    if request.allowed < total and pieces is not None:
        free = max(min(request.allowed - pieces.reserved, request.free), 0)
        limits.insert(0, Limit(name="this process's share of the device", total=request.allowed, free=free))
    return OomEvent(
        device=device,
        step=situation.step,
        requested=request.requested,
        limits=tuple(limits),
        device_free=request.free,
        device_total=total,
        pieces=pieces,
        process=pieces.reserved if pieces is not None else None,
        line=asking_line(training_frame()),
    )


def error_report(error: BaseException, situation: RunContext, given_back: int = 0) -> OomReport:
    """Report of an exception raised by the loop, whose frames still hold their variables.

    ``given_back``: bytes of addresses that the program could not have had, and that are free for this report.
    """
    device = device_of(error)
    sample = situation.last.get(device)
    known: dict[str, Any] = {}
    if device == "cpu":
        known = _of_host(host_state(), given_back)
    elif sample is not None:
        known = {"pieces": _pieces(sample), "process": sample.reserved, "device_total": sample.device_total}
    known |= {"requested": requested_bytes(error), "line": raising_line(error.__traceback__)}
    shortage = OomEvent(device=device, step=situation.step, error=type(error).__name__, **known)
    return _report(shortage, situation, live_memory(innermost_frame(error.__traceback__)))


def host_report(host: HostState, situation: RunContext) -> OomReport:
    """Report of the holders of the host's memory before it is exhausted."""
    shortage = OomEvent(device="cpu", step=situation.step, requested=None, **_of_host(host))
    return _report(shortage, situation, live_memory(None))


def _of_host(host: HostState, given_back: int = 0) -> dict[str, Any]:
    limits = tuple(
        replace(limit, free=max(limit.free - given_back, 0)) if limit.counts_addresses else limit
        for limit in host.limits
    )
    return {"limits": limits, "device_free": host.free, "device_total": host.total, "process": host.resident}


def _report(
    shortage: OomEvent,
    situation: RunContext,
    found: LiveHolders,
    holdings: Sequence[OomHolder] | None = None,
    notes: Sequence[str] = (),
) -> OomReport:
    if holdings is None:
        holdings = holdings_of(found.live, shortage.device, found.lines)
    return OomReport(
        shortage=shortage,
        reasons=reasons_of(shortage, situation.findings),
        holdings=tuple(holdings[:MOST]),
        seen=sum(holding.bytes for holding in holdings),
        notes=(*notes, *(() if found.complete else (_NOT_ALL,))),
    )


def _pieces(sample: MemorySample | None) -> AllocatorUsage | None:
    """The allocator's usage by its counters, if its blocks are not known."""
    if sample is None or sample.reserved is None or sample.device == "cpu":
        return None
    used = sample.active if sample.active is not None else sample.allocated
    return pieces_without_blocks(sample.reserved, used or 0, sample.inactive_split or 0)
