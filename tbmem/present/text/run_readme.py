"""The story of a run goes in, with analyses of its recordings; README and lines for the terminal come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.run_report import RunReport
from tbmem.analysis.runs.run_status import standing
from tbmem.model.category import word_of
from tbmem.present.labels import plain_markdown
from tbmem.present.lines import SEPARATOR, finding_line
from tbmem.present.text.run_end import peak_line
from tbmem.units import format_bytes, format_duration, format_moment


class Recorded(NamedTuple):
    """One trace or snapshot of the run."""

    analysis: Analysis
    """Its rows are not needed."""
    file: str
    """Name of the file."""
    link: str
    """Folder of its report, relative to the run's."""


def _about(story: RunReport) -> str:
    begun = format_moment(story.started) if story.started else ""
    words = (
        f"begun {begun}" if begun else "",
        story.host,
        f"torch {story.torch}" if story.torch else "",
        story.status.sentence,
    )
    return SEPARATOR.join(filter(None, words))


def run_lines(story: RunReport, recorded: Sequence[Recorded]) -> list[str]:
    """The same in short, for a terminal."""
    lines = [f"run {story.name}: {story.steps} steps in {format_duration(story.seconds)}, {story.status.sentence}"]
    several = len(story.ranks) > 1
    lines += [peak_line(peak, several) for peak in story.peaks]
    loud = [one for one in standing(story.findings) if not one.kind.is_quiet]
    lines += [f"step {one.last_step}: {finding_line(one)}" for one in loud] or ["no findings"]
    for one in recorded:
        peak = one.analysis.main.peak
        lines.append(f"{one.file}: peak {format_bytes(peak.bytes)} in the {word_of(peak.phase)} {peak.line}".rstrip())
    return [*lines, *(f"not known: {note}" for note in story.notes)]


def run_text(story: RunReport, recorded: Sequence[Recorded], written: str = "") -> str:
    """The README of the report of a run."""
    lines = [f"# Run {story.name}", "", f"- Folder: `{story.path}`", f"- {_about(story)}"]
    lines += [f"- Written: {written}"] if written else []
    lines += ["", "## What was seen", "", *(f"- {plain_markdown(line)}" for line in run_lines(story, ())[1:])]
    advice = dict.fromkeys(one.advice for one in standing(story.findings) if one.advice and not one.kind.is_quiet)
    lines += ["", "## What to do", "", *(f"- {plain_markdown(text)}" for text in advice)] if advice else []
    if recorded:
        lines += ["", "## Recordings", "", "| recording | peak |", "|---|---:|"]
        for one in recorded:
            lines.append(
                f"| [{plain_markdown(one.file)}]({one.link}/README.md) | {format_bytes(one.analysis.main.peak.bytes)} |"
            )
    lines += ["", "## Files", "", "| file | what |", "|---|---|"]
    lines.append("| [report.html](report.html) | live series, findings, windows; needs no network |")
    lines.append("| [memory_series.png](memory_series.png) | memory over the steps |")
    lines.append("| [run.json](run.json) | the figures for programs |")
    return "\n".join(lines) + "\n"
