"""Views of where runs stand: cards, findings and what to do next (``runs.Overview``, ``runs.Ranks``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState, Standing, standing
from tbmem.analysis.statistics import outlier
from tbmem.model.finding import Finding, Severity
from tbmem.present.lines import device_label, peak_word
from tbmem.present.text.run_status import run_view
from tbmem.present.views.empty_states import NO_LOG, NO_RECORDINGS, NO_SAMPLES
from tbmem.present.views.run_logs import LoggedRun
from tbmem.present.views.run_schema import Card, Empty, FindingItem, OverviewRun, RankColumns
from tbmem.units import format_bytes

_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def overview_of(run: LoggedRun, now: float) -> OverviewRun:
    """One run's cards."""
    view = run_view(run.name, run.states, now)
    cards = [_card(state, track) for state in run.states for track in state.devices]
    header = next((state.header for state in run.states if state.header), {})
    last = max((state.last_time for state in run.states if state.last_time is not None), default=None)
    findings = sorted(_loud(run.findings), key=lambda one: (_ORDER[one.severity], -one.last_step))
    return {
        "run": run.name,
        "status": view["status"],
        "status_text": view["status_text"],
        "step": view["step"],
        "steps_per_second": view["steps_per_second"],
        "seconds": None if last is None or not run.began else round(max(last - run.began, 0.0), 3),
        "age": view["seconds_since_last_row"],
        "host": ", ".join(dict.fromkeys(str(state.header["host"]) for state in run.states if "host" in state.header)),
        "torch": str(header.get("torch", "")),
        "cards": cards,
        "findings": [finding_item(run.name, one) for one in findings],
        "next_steps": _next_steps(run, cards, findings, Standing(view["status"])),
        "notes": list(run.notes),
        "errors": list(run.errors),
        "empty": _empty(run),
    }


def _empty(run: LoggedRun) -> Empty | None:
    if not run.states:
        return NO_LOG
    return None if run.series else NO_SAMPLES


def _loud(findings: Sequence[Finding]) -> list[Finding]:
    """The last of each kind on each device."""
    found = {(one.rank, one.device, one.kind): one for one in standing(findings) if not one.kind.is_quiet}
    return list(found.values())


def _card(state: RankState, track: DeviceHistory) -> Card:
    kind = state.verdict(track.device)
    told = state.verdict_finding(track.device)
    last, peak = track.last, track.peak
    return {
        "rank": state.rank,
        "device": track.device,
        "name": device_label(track.device),
        "verdict": kind.value,
        "label": kind.label,
        "severity": told.severity.value if told is not None else Severity.INFO.value,
        "message": told.message if told is not None else "",
        "line": _line(told.evidence) if told is not None else "",
        "advice": told.advice if told is not None else "",
        "allocated": last.allocated if last is not None else None,
        "reserved": last.reserved if last is not None else None,
        "peak": peak.bytes if peak is not None else None,
        "peak_word": peak_word(peak.counter if peak is not None else None),
        "peak_step": peak.step if peak is not None else None,
        "capacity": peak.total if peak is not None else None,
        "headroom": peak.headroom if peak is not None else None,
        "growth_per_step": state.growth_per_step(track),
        "levels": track.levels(64),
        "peaks": track.peaks(64),
    }


def _line(evidence: Mapping[str, Any]) -> str:
    """The source line of a finding: ``'train.py:41  losses.append(loss)'``."""
    line = evidence.get("line")
    if not isinstance(line, Mapping) or "file" not in line:
        return ""
    name = str(line["file"]).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line.get('line', '?')}  {line.get('text', '')}".rstrip()


def finding_item(run: str, one: Finding, x: float | None = None) -> FindingItem:
    """A finding as plain values."""
    return {
        "run": run,
        "kind": one.kind.value,
        "label": one.kind.label,
        "severity": one.severity.value,
        "quiet": one.kind.is_quiet,
        "device": one.device,
        "rank": one.rank,
        "first_step": one.first_step,
        "last_step": one.last_step,
        "x": x,
        "message": one.message,
        "advice": one.advice,
        "line": _line(one.evidence),
        "known_by": str(one.evidence.get("known_by", "")),
        "evidence": dict(one.evidence),
    }


def _next_steps(run: LoggedRun, cards: Sequence[Card], findings: Sequence[Finding], standing: Standing) -> list[str]:
    """What to do: the findings' advice, then how much room there is, then where to look."""
    found = list(dict.fromkeys(one.advice for one in findings if one.advice))
    for card in cards:
        if card["headroom"] is not None and card["capacity"]:
            share = 100 * card["headroom"] / card["capacity"]
            if share < 10:
                found.append(f"{card['name']}: only {format_bytes(card['headroom'])} were free at the peak. See Peak.")
    if run.states and not standing.is_over:
        found.append("The run still writes: reload to see more, or switch automatic reload on.")
    if run.recordings:
        found.append("See Timeline and Peak for what the memory of a recorded window is made of.")
    else:
        found.append(f"{NO_RECORDINGS['title']}: {NO_RECORDINGS['text']}")
    return found


def rank_columns(run: LoggedRun) -> tuple[RankColumns, str | None]:
    """All ranks side by side, and the sentence on the odd one."""
    pairs = [(state, track, _card(state, track)) for state in run.states for track in state.devices]
    odd, message = _odd([card for _, _, card in pairs])
    own = {
        "host": [str(state.header.get("host", "")) for state, _, _ in pairs],
        "step": [track.last.step if track.last is not None else 0 for _, track, _ in pairs],
        "odd": [at == odd for at in range(len(pairs))],
    }
    cards: list[Mapping[str, Any]] = [card for _, _, card in pairs]
    columns = {name: own.get(name) or [card.get(name) for card in cards] for name in RankColumns.__annotations__}
    return cast(RankColumns, columns), message


def _odd(cards: Sequence[Card]) -> tuple[int | None, str | None]:
    """The rank whose peak lies farthest from the middle, if it stands out; fewer than three have none."""
    known = [(at, card["peak"]) for at, card in enumerate(cards) if card["peak"] is not None]
    peaks = [peak for _, peak in known]
    at = outlier(peaks)
    if at is None:
        return None, None
    number = known[at][0]
    card = cards[number]
    return number, (
        f"Rank {card['rank']} ({card['name']}) is the odd one: a peak of {format_bytes(peaks[at])}, where the middle"
        f" of all is {format_bytes(float(np.median(peaks)))}."
    )
