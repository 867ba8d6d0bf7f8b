"""The text of an out-of-memory report."""

from __future__ import annotations

from collections.abc import Iterator

from tbmem.model.oom import CGROUP, MACHINE, Cause, OomHolder, OomReport, Reason
from tbmem.present.lines import SEPARATOR, device_label
from tbmem.units import format_bytes


def shortage_lines(report: OomReport) -> list[str]:
    """The report, line by line, without a heading."""
    return [*_request(report), *_why(report), *_holders(report), *(f"note: {note}" for note in report.notes)]


def shortage_sentence(report: OomReport) -> str:
    """``'step 7 ran out of memory: 2.00 GiB were requested at train.py:31, 1.20 GiB were free'`` and why."""
    shortage = report.shortage
    size = shortage.requested
    request = "a request of unknown size failed" if size is None else f"{format_bytes(size)} were requested"
    where = f" at {shortage.line}" if shortage.line else ""
    free = f", {format_bytes(shortage.free)} were free" if shortage.free is not None else ""
    why = f"{SEPARATOR}{_cause(report.reasons[0])}: {report.reasons[0].text}" if report.reasons else ""
    return f"step {shortage.step} ran out of memory: {request}{where}{free}{why}"


def near_sentence(report: OomReport) -> str:
    """``'the cgroup is nearly used up: 312.00 MiB of 8.00 GiB left, this process holds 6.90 GiB ...'``."""
    shortage = report.shortage
    limit = shortage.limits[0]
    place = f"the {limit.name}" if limit.name == CGROUP else limit.name
    end = "the kernel kills it without a message" if limit.name in (CGROUP, MACHINE) else "its requests fail"
    leak = next((each for each in report.reasons[:1] if each.cause is Cause.LEAK), None)
    why = f"{SEPARATOR}{_cause(leak)}: {leak.text}" if leak is not None else ""
    return (
        f"{place} is nearly used up: {format_bytes(limit.free)} of {format_bytes(limit.total)} left, this process"
        f" holds {format_bytes(shortage.process or 0)}; at the limit {end}{why}"
    )


def _request(report: OomReport) -> Iterator[str]:
    shortage = report.shortage
    where = f" at {shortage.line}" if shortage.line else ""
    size = "an unknown size" if shortage.requested is None else format_bytes(shortage.requested)
    if not shortage.only_near:
        yield f"requested: {size} on {device_label(shortage.device)}{where}, in step {shortage.step}"
    if shortage.limits:
        limits = [f"{format_bytes(each.free)} of {format_bytes(each.total)} ({each.name})" for each in shortage.limits]
        yield f"free:      {SEPARATOR.join(limits)}"
    pieces = shortage.pieces
    if pieces is not None:
        parts = [f"in use {format_bytes(pieces.active)}", f"fragmented {format_bytes(pieces.fragmented)}"]
        parts.append(f"cached {format_bytes(pieces.cached)}")
        if pieces.largest_free is not None:
            parts.append(f"largest free block {format_bytes(pieces.largest_free)}")
        yield f"reserved:  {format_bytes(pieces.reserved)} ({', '.join(parts)})"
    elif shortage.process is not None:
        yield f"process:   {format_bytes(shortage.process)} resident"


def _cause(reason: Reason) -> str:
    return reason.cause.value.replace("_", " ")


def _why(report: OomReport) -> Iterator[str]:
    for number, reason in enumerate(report.reasons):
        word = "why:      " if number == 0 else "also:     "
        sure = "; without it the request would have fitted" if reason.enough else ""
        yield f"{word} {_cause(reason)}: {reason.text}{sure}"
    if report.reasons:
        yield f"do:        {report.reasons[0].advice}"


def _holders(report: OomReport) -> Iterator[str]:
    if not report.holdings:
        return
    yield f"the {len(report.holdings)} largest holders, of {format_bytes(report.seen)} that can be seen:"
    for holding in report.holdings:
        yield f"  {format_bytes(holding.bytes):>11}  {_holding(holding)}"


def _holding(holding: OomHolder) -> str:
    text = holding.name
    if holding.count > 1:
        text += f" ({holding.count} parts{f'; the largest is {holding.largest}' if holding.largest else ''})"
    return SEPARATOR.join([text, *holding.lines[:1]])
