"""The state of a run as JSON and as lines for a terminal (``tbmem watch``)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from rich.text import Text

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState, latest, rank_status, run_status, skipped_note, standing
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import gap_notes
from tbmem.present.lines import SEPARATOR, device_label, finding_line, level_note, peak_word
from tbmem.units import format_bytes, format_signed, format_speed

_MORE = 6  # findings that are only named
_BARS = "▁▂▃▄▅▆▇█"
_PEAK = {
    **{"peak": "bytes", "peak_step": "step", "peak_counter": "counter", "peak_own": "own", "peak_ended": "ended"},
    **{"total": "total", "headroom": "headroom"},
}
"""Fields of the peak by their key in JSON."""
_SEVERITY_STYLES = {Severity.INFO: "", Severity.WARNING: "yellow", Severity.CRITICAL: "red"}
_GROWS = (FindingKind.LEAK, FindingKind.GROWING)
"""Verdicts beside which a growth rate stands: of other memory it is noise, or what a cache took before it was full."""
_STYLES = {FindingKind.STABLE: "green", FindingKind.LEAK: "bold red", FindingKind.OOM: "bold red"}


def run_view(name: str, states: Sequence[RankState], now: float, errors: Sequence[str] = ()) -> dict[str, Any]:
    """A run as plain JSON values; sizes are bytes, times seconds; ``errors`` are of logs that could not be read."""
    last = max((state.last_time for state in states if state.last_time is not None), default=None)
    age = None if last is None else max(now - last, 0.0)
    status = run_status(states, now)
    findings = [finding for state in states for finding in standing(state.findings) if not finding.kind.is_quiet]
    findings.sort(key=lambda finding: finding.last_step)
    return {
        "run": name,
        **status.to_dict(),
        "step": max((state.step for state in states), default=0),
        "steps_per_second": states[0].steps_per_second() if states else None,
        "seconds_since_last_row": age,
        "errors": list(errors),
        "ranks": [_rank_view(state, now) for state in states],
        "findings": [finding.to_dict() for finding in findings],
        "notes": [note for state in states for note in gap_notes(state.gaps, state.rank)],
    }


def _rank_view(state: RankState, now: float) -> dict[str, Any]:
    return {
        "rank": state.rank,
        "host": state.header.get("host"),
        **rank_status(state, now).to_dict(),
        "skipped_records": state.skipped,
        "devices": [device_view(state, track) for track in state.devices],
    }


def device_view(state: RankState, track: DeviceHistory) -> dict[str, Any]:
    """A device as plain JSON values, with at most 64 ``levels`` after the steps and ``peaks`` within them."""
    return {
        "device": track.device,
        "verdict": state.verdict(track.device).value,
        **{name: getattr(track.last, name, None) for name in ("allocated", "reserved")},
        "allocated_step": track.level_step,
        **{name: getattr(track.peak, field, None) for name, field in _PEAK.items()},
        "growth_per_step": state.growth_per_step(track),
        "levels": track.levels.parts(64),
        "peaks": track.peaks.parts(64),
    }


def sparkline(levels: Sequence[int], width: int) -> str:
    """Levels as a line of bars, scaled from the lowest to the highest; the range is at least 1 % of the highest."""
    if not levels or width < 1:
        return ""
    ends = [at * len(levels) // width for at in range(width + 1)]
    # of several in one bar the highest
    chosen = levels if len(levels) <= width else [max(levels[begin:end]) for begin, end in pairwise(ends)]
    low, high = min(chosen), max(chosen)
    low = min(low, int(high * 0.99))
    span = max(high - low, 1)
    return "".join(_BARS[min((level - low) * len(_BARS) // span, len(_BARS) - 1)] for level in chosen)


def run_lines(view: dict[str, Any], *, width: int = 80, findings: int = 3, max_lines: int | None = 3) -> list[Text]:
    """A view as lines for a terminal, none wider than ``width``; ``max_lines`` of each finding."""
    lines = [*_heading(view, width), *(Text(f"cannot be read: {error}", style="red") for error in view["errors"])]
    for rank in view["ranks"]:
        for device in rank["devices"]:
            lines += _device_lines(device, rank, len(view["ranks"]) > 1, width)
        if rank["skipped_records"]:
            lines.append(Text(f"rank {rank['rank']}: {skipped_note(rank['skipped_records'])}", style="yellow"))
    reported = latest([Finding.from_dict(record) for record in view["findings"]])
    for finding in reported[:findings]:
        text, style = finding_line(finding), _SEVERITY_STYLES[finding.severity]
        wrapped = textwrap.wrap(text, width, subsequent_indent="  ", max_lines=max_lines, placeholder=" …")
        lines += [Text(line, style=style) for line in wrapped]
    if findings and (more := reported[findings:]):
        named = ", ".join(f"{finding.label} in step {finding.first_step}" for finding in more[:_MORE])
        lines.append(Text(f"{len(more)} more: {named}{', ...' if len(more) > _MORE else ''}"))
    lines += [
        Text(line) for note in view.get("notes", ()) for line in textwrap.wrap(note, width, subsequent_indent="  ")
    ]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _heading(view: dict[str, Any], width: int) -> list[Text]:
    name = view["run"]
    if len(name) > width:
        name = f"…{name[len(name) - width + 1 :]}"  # the name is the last part of the path
    speed = view["steps_per_second"]
    parts = [name, *view["status_text"].split(SEPARATOR), f"step {view['step']}"]
    parts += [f"{format_speed(speed)} unprofiled"] if speed else []
    first, *others = _packed(parts, width, indent="")
    return [Text.assemble((name, "bold"), first[len(name) :]), *map(Text, others)]


def _device_lines(device: dict[str, Any], rank: dict[str, Any], several: bool, width: int) -> list[Text]:
    kind = FindingKind(device["verdict"])
    place = f"rank {rank['rank']} {device_label(device['device'])}" if several else device_label(device["device"])
    head = f"{place:<6} "
    growth = device["growth_per_step"]
    slope = f" {format_signed(growth)}/step" if kind in _GROWS and growth is not None and abs(growth) >= 1 else ""
    bars = sparkline(device["levels"], width - len(head) - len(kind.label) - len(slope) - 1)
    first = Text.assemble(head, (bars, "cyan"), " ", (kind.label, _STYLES.get(kind, "yellow")), slope)
    words = {"peak": peak_word(device["peak_counter"])}
    keys = [key for key in ("allocated", "reserved", "peak", "headroom") if device[key] is not None]
    own = f" (tbmem {format_bytes(device['peak_own'])})" if device["peak_own"] else ""
    notes = {"peak": own, "allocated": level_note(device["allocated_step"])}
    sizes = [f"{words.get(key, key)} {format_bytes(device[key])}{notes.get(key, '')}" for key in keys]
    lines = [first]
    if device["peaks"]:
        lines.append(Text.assemble(f"{'peaks':<{len(head)}}", (sparkline(device["peaks"], len(bars)), "cyan")))
    return [*lines, *(Text(line) for line in _packed(sizes, width))]


def _packed(parts: Sequence[str], width: int, *, indent: str = "  ") -> list[str]:
    """Parts joined into as few lines of ``width`` columns as possible."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1] + SEPARATOR + part) <= width:
            lines[-1] += SEPARATOR + part
        else:
            lines.append(f"{'  ' if lines else indent}{part}")
    return lines
