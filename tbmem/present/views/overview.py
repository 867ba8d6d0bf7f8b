"""The list of runs, and the overview of each: cards, findings, next steps, ranks side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState, Standing, standing
from tbmem.analysis.statistics import outlier
from tbmem.model.category import WORDS, Category
from tbmem.model.finding import Finding, Severity
from tbmem.present.lines import device_label, peak_word
from tbmem.present.palette import category_colour
from tbmem.present.text.run_status import run_view
from tbmem.present.views.empty_states import NO_LOG, NO_RECORDINGS, NO_SAMPLES
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.run_schema import Card, Empty, FindingItem, Index, OverviewRun, RankColumns, RunItem
from tbmem.units import format_bytes

_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def index_view(
    runs: Sequence[RunItem],
    *,
    version: str,
    source: str,
    written: str | None = None,
    notes: Sequence[str] = (),
    empty: Empty | None = None,
) -> Index:
    """The list of runs, with the words and colours of categories that all views use."""
    return {
        "tbmem": version,
        "source": source,
        "written": written,
        "runs": list(runs),
        "colours": {"categories": {category.name: category_colour(category.name) for category in Category}},
        "words": dict(WORDS),
        "notes": list(notes),
        "empty": empty,
    }


def overview_of(run: LoggedRun, now: float) -> OverviewRun:
    """Cards, findings and next steps of one run."""
    view = run_view(run.name, run.states, now)
    cards = [_card(state, track) for state in run.states for track in state.devices]
    header: Mapping[str, Any] = next((state.header for state in run.states if state.header), {})
    last = max((state.last_time for state in run.states if state.last_time is not None), default=None)
    findings = sorted(_latest(run.findings), key=lambda finding: (_ORDER[finding.severity], -finding.last_step))
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
        "findings": [finding_item(run.name, finding) for finding in findings],
        "next_steps": _next_steps(run, cards, findings, Standing(view["status"])),
        "notes": list(run.notes),
        "errors": list(run.errors),
        "empty": _empty(run),
    }


def _empty(run: LoggedRun) -> Empty | None:
    if not run.states:
        return NO_LOG
    return None if run.series else NO_SAMPLES


def _latest(findings: Sequence[Finding]) -> list[Finding]:
    """The last finding of each kind on each device, without quiet ones."""
    reported = [finding for finding in standing(findings) if not finding.kind.is_quiet]
    return list({(finding.rank, finding.device, finding.kind): finding for finding in reported}.values())


def _card(state: RankState, track: DeviceHistory) -> Card:
    kind = state.verdict(track.device)
    verdict = state.verdict_finding(track.device)
    last, peak = track.last, track.peak
    return {
        "rank": state.rank,
        "device": track.device,
        "name": device_label(track.device),
        "verdict": kind.value,
        "label": kind.label,
        "severity": verdict.severity.value if verdict is not None else Severity.INFO.value,
        "message": verdict.message if verdict is not None else "",
        "line": _line(verdict.evidence) if verdict is not None else "",
        "advice": verdict.advice if verdict is not None else "",
        "allocated": last.allocated if last is not None else None,
        "reserved": last.reserved if last is not None else None,
        "peak": peak.bytes if peak is not None else None,
        "peak_word": peak_word(peak.counter if peak is not None else None),
        "peak_step": peak.step if peak is not None else None,
        "capacity": peak.total if peak is not None else None,
        "headroom": peak.headroom if peak is not None else None,
        "growth_per_step": state.growth_per_step(track),
        "levels": track.levels.parts(64),
        "peaks": track.peaks.parts(64),
    }


def _line(evidence: Mapping[str, Any]) -> str:
    """The source line of a finding: ``'train.py:41  losses.append(loss)'``."""
    line = evidence.get("line")
    if not isinstance(line, Mapping) or "file" not in line:
        return ""
    name = str(line["file"]).replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{line.get('line', '?')}  {line.get('text', '')}".rstrip()


def finding_item(run: str, finding: Finding, x: float | None = None) -> FindingItem:
    """A finding as JSON values; ``x`` is the position of its last step."""
    return {
        "run": run,
        "kind": finding.kind.value,
        "label": finding.kind.label,
        "severity": finding.severity.value,
        "quiet": finding.kind.is_quiet,
        "device": finding.device,
        "rank": finding.rank,
        "first_step": finding.first_step,
        "last_step": finding.last_step,
        "x": x,
        "message": finding.message,
        "advice": finding.advice,
        "line": _line(finding.evidence),
        "known_by": str(finding.evidence.get("known_by", "")),
        "evidence": dict(finding.evidence),
    }


def _next_steps(run: LoggedRun, cards: Sequence[Card], findings: Sequence[Finding], standing: Standing) -> list[str]:
    """What to do next: the advice of the findings, then the headroom, then the views to open."""
    steps = list(dict.fromkeys(finding.advice for finding in findings if finding.advice))
    for card in cards:
        if card["headroom"] is not None and card["capacity"]:
            share = 100 * card["headroom"] / card["capacity"]
            if share < 10:
                steps.append(f"{card['name']}: only {format_bytes(card['headroom'])} were free at the peak. See Peak.")
    if run.states and not standing.is_over:
        steps.append("The run still writes: reload to see more, or switch automatic reload on.")
    if run.recordings:
        steps.append("See Timeline and Peak for what the memory of a recorded window is made of.")
    else:
        steps.append(f"{NO_RECORDINGS['title']}: {NO_RECORDINGS['text']}")
    return steps


def rank_columns(run: LoggedRun) -> tuple[RankColumns, str | None]:
    """All ranks side by side, and a sentence about the outlier."""
    pairs = [(state, track, _card(state, track)) for state in run.states for track in state.devices]
    odd, message = _outlier([card for _, _, card in pairs])
    by_track = {
        "host": [str(state.header.get("host", "")) for state, _, _ in pairs],
        "step": [track.last.step if track.last is not None else 0 for _, track, _ in pairs],
        "odd": [index == odd for index in range(len(pairs))],
    }
    cards: list[Mapping[str, Any]] = [card for _, _, card in pairs]
    columns = {name: by_track.get(name) or [card.get(name) for card in cards] for name in RankColumns.__annotations__}
    return cast(RankColumns, columns), message


def _outlier(cards: Sequence[Card]) -> tuple[int | None, str | None]:
    """Index and description of the rank whose peak is farthest from the median, if it stands out."""
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
