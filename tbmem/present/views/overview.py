"""The list of runs, and the overview of each: cards, findings, next steps, ranks side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.analysis.runs.run_status import RankState, RunStatus, Standing, latest, rank_status, standing
from tbmem.analysis.statistics import outlier
from tbmem.model.category import WORDS, Category
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.present.lines import device_label, peak_word
from tbmem.present.palette import category_colour
from tbmem.present.text.run_status import device_view, run_view
from tbmem.present.views.empty_states import NO_LOG, NO_RECORDINGS, NO_SAMPLES
from tbmem.present.views.live import LoggedRun
from tbmem.present.views.run_schema import Empty, RunItem
from tbmem.present.views.stories import source_line, story_of, story_of_death
from tbmem.units import format_bytes

_RANK_COLUMNS = (
    *("rank", "device", "verdict", "label", "severity", "allocated", "reserved", "peak", "capacity", "headroom"),
    *("growth_per_step", "levels", "peaks"),
)
_ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.INFO: 2}


def index_view(
    runs: Sequence[RunItem],
    *,
    version: str,
    source: str,
    written: str | None = None,
    notes: Sequence[str] = (),
    empty: Empty | None = None,
) -> dict[str, Any]:
    """The list of runs, with the words and colours of categories that all views use."""
    return {
        "tbmem": version,
        "source": source,  # tensorboard or report
        "written": written,
        "runs": list(runs),
        "colours": {"categories": {category.name: category_colour(category.name) for category in Category}},
        "words": dict(WORDS),
        "notes": list(notes),
        "empty": empty,
    }


def overview_of(run: LoggedRun, now: float, status: RunStatus | None = None) -> dict[str, Any]:
    """Cards, findings and next steps of one run.

    Args:
        run: The run; of logs that are still to be read on, what to do next is not said.
        now: Unix time in seconds.
        status: Of the run, if its logs were not read to their ends; that of what was read otherwise.
    """
    view = run_view(run.name, run.states, now)
    if status is not None:
        view |= status.to_dict()
    cards = [_card(state, track) for state in run.states for track in state.devices]
    headers = [state.header for state in run.states]
    until = max((state.until for state in run.states if state.until is not None), default=None)
    reported = latest([finding for finding in standing(run.findings) if not finding.kind.is_quiet])
    findings = sorted(reported, key=lambda finding: (_ORDER[finding.severity], -finding.last_step))
    return {
        **{name: view[name] for name in ("run", "status", "status_text", "step", "steps_per_second")},
        # the duration of the run so far, and the time since its last line
        "seconds": None if until is None or not run.began else round(max(until - run.began, 0.0), 3),
        "age": view["seconds_since_last_row"],
        "host": ", ".join(dict.fromkeys(header["host"] for header in headers if "host" in header)),
        "torch": next((header["torch"] for header in headers if "torch" in header), ""),
        "cards": cards,
        "stories": _stories(run, findings, now),
        "findings": [finding_item(run.name, finding) for finding in findings],
        "next_steps": [] if run.unread else _next_steps(run, cards, findings, Standing(view["status"])),
        "notes": list(run.notes),
        "errors": list(run.errors),
        "unread": run.unread,  # share of the logs that is still to be read
        "empty": NO_LOG if not run.states else NO_SAMPLES if not run.series else None,
    }


def _card(state: RankState, track: DeviceHistory) -> dict[str, Any]:
    """The state of one device of one rank."""
    card = device_view(state, track)
    kind, counter, capacity = FindingKind(card["verdict"]), card.pop("peak_counter"), card.pop("total")
    verdict = state.verdict_finding(track.device)
    return {
        **card,
        "rank": state.rank,
        "name": device_label(track.device),
        "label": kind.label,
        "severity": verdict.severity.value if verdict is not None else Severity.INFO.value,
        "message": verdict.message if verdict is not None else "",
        "line": source_line(verdict.evidence.get("line")) if verdict is not None else "",
        "advice": verdict.advice if verdict is not None else "",
        "peak_word": peak_word(counter),
        "capacity": capacity,
    }


def finding_item(run: str, finding: Finding, x: float | None = None) -> dict[str, Any]:
    """A finding as JSON values; ``x`` is the position of its last step in a series."""
    return {
        **finding.to_dict(),
        "run": run,
        "label": finding.label,
        "quiet": finding.kind.is_quiet,  # a suspicion or its dismissal, not reported
        "x": x,
        "line": source_line(finding.evidence.get("line")),
        "known_by": str(finding.evidence.get("known_by", "")),
    }


def _stories(run: LoggedRun, findings: Sequence[Finding], now: float) -> list[dict[str, Any]]:
    """Stories of ranks that were killed, of errors and leaks, each with the question for what would have helped."""
    dead = [state for state in run.states if rank_status(state, now).standing is Standing.DIED]
    stories = [*map(story_of_death, dead[:1]), *(story for story in map(story_of, findings) if story is not None)]
    for story in stories:
        file = next((file for file in run.recordings if file.rsplit("/", 1)[-1] == story["snapshot"]), None)
        query = {"run": run.name, **({} if file is None else {"file": file}), "missing": str(story["missing"])}
        story["remedies"] = None if story["missing"] is None else query
    return stories


def _next_steps(
    run: LoggedRun, cards: Sequence[dict[str, Any]], findings: Sequence[Finding], standing: Standing
) -> list[str]:
    """What to do next: the advice of the findings, then the headroom, then the views to open."""
    # the story of an out-of-memory error knows why it failed; what was said before it on the way there does not
    failed = {(finding.rank, finding.device) for finding in findings if finding.kind is FindingKind.OOM}
    told = [
        finding
        for finding in findings
        if finding.kind is not FindingKind.NEAR_CAPACITY or (finding.rank, finding.device) not in failed
    ]
    steps = list(dict.fromkeys(finding.advice for finding in told if finding.advice))
    for card in cards:
        if card["headroom"] is not None and card["capacity"]:
            share = 100 * card["headroom"] / card["capacity"]
            if share < 10:
                steps.append(f"{card['name']}: only {format_bytes(card['headroom'])} were free at the peak. See Peak.")
    if run.states and not standing.is_over:
        steps.append("The run still writes: see Live, which shows new steps by itself.")
    if standing is Standing.ENDED and cards and all(card["verdict"] == FindingKind.STABLE.value for card in cards):
        steps.append("Nothing has to be changed: memory is stable.")
    if run.recordings:
        steps.append("See Timeline and Peak for what the memory of a recorded window is made of.")
    else:
        steps.append(f"{NO_RECORDINGS['title']}: {NO_RECORDINGS['text']}")
    return steps


def rank_columns(run: LoggedRun) -> tuple[dict[str, list[Any]], str | None]:
    """All ranks and devices side by side, by rank, and a sentence about the outlier."""
    pairs = [(state, track, _card(state, track)) for state in run.states for track in state.devices]
    odd, message = _outlier([card for _, _, card in pairs])
    columns = {name: [card[name] for _, _, card in pairs] for name in _RANK_COLUMNS}
    columns["host"] = [state.header.get("host", "") for state, _, _ in pairs]
    columns["step"] = [min(track.last.step, state.step) if track.last is not None else 0 for state, track, _ in pairs]
    columns["odd"] = [index == odd for index in range(len(pairs))]
    return columns, message


def _outlier(cards: Sequence[dict[str, Any]]) -> tuple[int | None, str | None]:
    """Index and description of the rank whose peak is farthest from the median, if it stands out."""
    known = [(at, card["peak"]) for at, card in enumerate(cards) if card["peak"] is not None]
    peaks = [peak for _, peak in known]
    at = outlier(peaks)
    if at is None:
        return None, None
    number = known[at][0]
    rank = f"Rank {cards[number]['rank']} ({cards[number]['name']})"
    middle = format_bytes(float(np.median(peaks)))
    return number, f"{rank} differs from the others: a peak of {format_bytes(peaks[at])}, where the median is {middle}."
