"""The story of a run goes in, with analyses of its recordings; page, README and lines for the terminal come out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tbmem.analysis.report import Analysis
from tbmem.analysis.run_story import IN_ORDER, RunStory
from tbmem.analysis.series import Series
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.present.colours import category_word
from tbmem.present.console import SEPARATOR, device_label, finding_line
from tbmem.present.html import Page, escape, folded
from tbmem.present.series_charts import highest_of, ranks_chart, series_chart, series_name
from tbmem.units import format_bytes, format_duration

_CHARTS = 8
_QUIET = (FindingKind.SUSPECT, FindingKind.DISMISSED)


class Recorded(NamedTuple):
    """One trace or snapshot of the run."""

    analysis: Analysis
    """Its rows are not needed."""
    file: str
    """Name of the file."""
    link: str
    """Folder of its report, relative to the run's."""


def run_page(story: RunStory, recorded: Sequence[Recorded], written: str = "") -> str:
    """The page of a run.

    Args:
        story: What happened.
        recorded: Its traces and snapshots.
        written: When the page is written.
    """
    page = Page(f"Run {story.name}", story.path, _about(story), f"written {written}" if written else "")
    page.tiles(_figures(story))
    page.heading("Findings")
    loud = [one for one in story.findings if one.kind not in _QUIET]
    page.add(*map(_finding, loud))
    if not loud:
        page.add('<p class="note">None.</p>')
    page.heading("Memory over the steps")
    several = len(story.ranks) > 1
    if len(story.series) > 1 and several:
        page.chart(ranks_chart(story.series))
    for series in sorted(story.series, key=highest_of, reverse=True)[:_CHARTS]:
        page.heading(series_name(series, several), 3)
        windows = [dict(window) for window in story.windows if window["rank"] == series.rank]
        page.chart(series_chart(series, story.findings, windows))
    _windows(page, story, recorded)
    quiet = [one for one in story.findings if one.kind in _QUIET]
    if quiet:
        page.heading("Suspicions that were looked into")
        page.add(*map(_finding, quiet))
    if story.notes:
        page.heading("What is not known")
        page.add("<ul>", *(f"<li>{escape(note)}</li>" for note in story.notes), "</ul>")
    return page.render()


def _about(story: RunStory) -> str:
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(story.started)) if story.started else ""
    words = (f"begun {begun}" if begun else "", story.host, f"torch {story.torch}" if story.torch else "", story.end)
    return SEPARATOR.join(filter(None, words))


def _figures(story: RunStory) -> Iterable[tuple[str, str, str]]:
    yield "steps", f"{story.steps:,}", format_duration(story.seconds)
    if len(story.ranks) > 1:
        yield "ranks", f"{len(story.ranks)}", ""
    for series in sorted(story.series, key=highest_of, reverse=True)[:4]:
        word = "highest resident" if series.device == "cpu" else "highest"
        yield f"{word}, {series_name(series, len(story.ranks) > 1)}", format_bytes(highest_of(series)), _share(series)
    loud = [one for one in story.findings if one.kind not in _QUIET]
    yield "findings", f"{len(loud)}", "" if story.end == IN_ORDER else story.end


def _share(series: Series) -> str:
    capacity = series.most("capacity")
    return f"{100 * highest_of(series) / capacity:.0f} % of {format_bytes(capacity)}" if capacity else ""


def _finding(one: Finding) -> str:
    kind = {Severity.INFO: "info"}.get(one.severity, one.severity.value)
    kind = "good" if one.kind in (FindingKind.STABLE, FindingKind.DISMISSED) else kind
    rank = f" · rank {one.rank}" if one.rank else ""
    place = f"{device_label(one.device)}{rank} · steps {one.first_step} to {one.last_step}"
    evidence = json.dumps(dict(one.evidence), indent=1, default=str).splitlines() if one.evidence else []
    parts = [f"<p><b>{escape(one.kind.label)}</b> · {escape(one.message)}</p>", f'<p class="note">{escape(place)}</p>']
    parts += [f"<p>{escape(one.advice)}</p>"] if one.advice else []
    parts += [folded("evidence", evidence)] if evidence else []
    return f'<div class="finding {kind}">{"".join(parts)}</div>'


def _windows(page: Page, story: RunStory, recorded: Sequence[Recorded]) -> None:
    if not story.windows and not recorded:
        return
    page.heading("Windows and recordings")
    by_file = {one.file: one for one in recorded}
    listed = {name.rpartition("/")[2] for window in story.windows for name in window.get("files", ())}
    rows = []
    for window in story.windows:
        found = [by_file[name] for name in _names(window.get("files", ())) if name in by_file]
        steps = f"{window['first_step']} to {window['last_step']}" + (
            "" if window.get("complete", True) else ", cut off"
        )
        rows.append((str(window["rank"]), str(window["number"]), steps, *_recording_cells(found)))
    rows += [("", "", "", *_recording_cells([one])) for one in recorded if one.file not in listed]
    page.table(("rank", "window", "steps", "peak", "largest at the peak", "recording"), rows, numbers=(0, 1, 3))


def _names(files: Iterable[str]) -> list[str]:
    return [name.rpartition("/")[2] for name in files]


def _recording_cells(found: Sequence[Recorded]) -> tuple[str, str, str]:
    if not found:
        return "", "", ""
    peaks = [format_bytes(one.analysis.main.peak.bytes) for one in found]
    largest = [
        ", ".join(f"{category_word(share.name)} {share.percent:.0f} %" for share in one.analysis.main.by_category[:3])
        for one in found
    ]
    links = [f'<a href="{escape(one.link)}/report.html">{escape(one.file)}</a>' for one in found]
    return "<br>".join(peaks), "<br>".join(map(escape, largest)), "<br>".join(links)


def run_lines(story: RunStory, recorded: Sequence[Recorded]) -> list[str]:
    """The same in short, for a terminal."""
    lines = [f"run {story.name}: {story.steps} steps in {format_duration(story.seconds)}, {story.end}"]
    several = len(story.ranks) > 1
    lines += [
        SEPARATOR.join(
            filter(None, (f"highest {series_name(one, several)}: {format_bytes(highest_of(one))}", _share(one)))
        )
        for one in story.series
    ]
    loud = [one for one in story.findings if one.kind not in _QUIET]
    lines += [f"step {one.last_step}: {finding_line(one)}" for one in loud] or ["no findings"]
    for one in recorded:
        peak = one.analysis.main.peak
        lines.append(f"{one.file}: peak {format_bytes(peak.bytes)} in {peak.phase.lower()} {peak.line}".rstrip())
    return [*lines, *(f"not known: {note}" for note in story.notes)]


def run_text(story: RunStory, recorded: Sequence[Recorded], written: str = "") -> str:
    """The README of the report of a run."""
    lines = [f"# Run {story.name}", "", f"- Folder: `{story.path}`", f"- {_about(story)}"]
    lines += [f"- Written: {written}"] if written else []
    lines += ["", "## What was seen", "", *(f"- {_plain(line)}" for line in run_lines(story, ())[1:])]
    advice = dict.fromkeys(one.advice for one in story.findings if one.advice and one.kind not in _QUIET)
    lines += ["", "## What to do", "", *(f"- {_plain(text)}" for text in advice)] if advice else []
    if recorded:
        lines += ["", "## Recordings", "", "| recording | peak |", "|---|---:|"]
        for one in recorded:
            lines.append(
                f"| [{_plain(one.file)}]({one.link}/README.md) | {format_bytes(one.analysis.main.peak.bytes)} |"
            )
    lines += ["", "## Files", "", "| file | what |", "|---|---|"]
    lines.append("| [report.html](report.html) | live series, findings, windows; needs no network |")
    lines.append("| [memory_series.png](memory_series.png) | memory over the steps |")
    lines.append("| [run.json](run.json) | the figures for programs |")
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    return text.replace("\\", "\\\\").replace("_", "\\_").replace("*", "\\*").replace("|", "\\|").replace("<", "\\<")
