"""``README.md`` of reports: of one recording, of several recordings, of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tbmem.analysis.diagnosis.advice import recording_of
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis
from tbmem.analysis.runs.comparison import OddOne
from tbmem.analysis.runs.run_report import RunReport
from tbmem.analysis.runs.run_status import spike_at, standing
from tbmem.model.category import Phase, word_of
from tbmem.model.finding import FindingKind
from tbmem.present.figures.canvas import no_pictures
from tbmem.present.figures.figures import PICTURES, picture_folder
from tbmem.present.labels import plain_markdown
from tbmem.present.lines import SEPARATOR, device_label, finding_line, note_line
from tbmem.present.text.analysis_tables import efficiency_words, failed_sentence, named_shares, side_cells
from tbmem.present.text.run_end import peak_line, verdict_heading, verdict_line
from tbmem.units import format_bytes, format_duration, format_moment, format_share

_KNOWN_BY = {"known": "its name", "inferred": "inference", "mixed": "both", "none": "nobody"}
_RECORDED_PEAKS = (
    "peaks of recordings are of what torch allocates in their steps; the peak of the run is of all steps, and on the"
    " CPU of the whole process"
)
_SAME = 1.05
"""How far above the peaks of all recordings that of the run is at least where none of them holds it."""
_VERDICTS = 4
_CATEGORIES = 5
_LINES = 5
_FILES = (
    ("report.html", "all views, interactive; needs no network"),
    ("analysis_report.txt", "all figures to the byte: top 50, categories, fragmentation, recommendations"),
    ("analysis.json", "the same figures for programs, as `tbmem analyze --json` prints them"),
)
_RUN_FILES = (
    ("report.html", "live series, findings, windows; needs no network"),
    ("memory_series.png", "memory over the steps"),
    ("run.json", "the figures for programs"),
)


def findings_text(analysis: Analysis, written: str = "") -> str:
    """The README of the report of one recording."""
    about = [f"- Recording: {_code(analysis.path or analysis.name)} ({analysis.source})"]
    about += [f"- Written: {written}"] if written else []
    lines = [f"# Memory of {plain_markdown(analysis.name)}", "", *about, ""]
    for device in analysis.shown:
        is_partial = any(note.startswith(f"{device.name}: ") for note in analysis.notes)
        lines += _device(device, several=len(analysis.devices) > 1, is_partial=is_partial)
    if analysis.notes:
        lines += ["## What is not known", "", *(f"- {plain_markdown(note_line(note))}" for note in analysis.notes), ""]
    lines += _file_table(*_FILES, *PICTURES.items())
    if len(analysis.devices) > 1 and not no_pictures():
        others = [(device_label(device.name), picture_folder(device)) for device in analysis.shown[1:]]
        links = ", ".join(f"[{label}]({folder}/memory_timeline.png)" for label, folder in others)
        more = f" Folders of their own have those of {links}." if links else ""
        lines += ["", f"The pictures are of {device_label(analysis.main.name)}; report.html has every device.{more}"]
    return "\n".join(lines) + "\n"


def _file_table(*files: tuple[str, str]) -> list[str]:
    missing = no_pictures()
    rows = [f"| [{name}]({name}) | {what} |" for name, what in files if not (missing and name.endswith(".png"))]
    return [
        "## Files",
        "",
        "| file | what |",
        "|---|---|",
        *rows,
        *(["", f"No pictures: {missing}"] if missing else []),
    ]


def _device(device: DeviceAnalysis, *, several: bool, is_partial: bool) -> list[str]:
    lines = [f"## {device_label(device.name)}" if several else "## Findings", "", *_findings(device), ""]
    filled = [share for share in device.by_category if share.bytes]
    if filled:
        lines += ["| category | at the peak | share | known by |", "|---|---:|---:|---|"]
        for share in filled:
            cells = (plain_markdown(word_of(share.name)), format_bytes(share.bytes), f"{share.percent:.1f} %")
            lines.append(f"| {' | '.join(cells)} | {_KNOWN_BY.get(share.basis, '')} |")
        lines.append("")
    if named := named_shares(device.by_line)[:_LINES]:
        lines += ["Lines that hold most of the peak:", ""]
        lines += [f"{rank}. {_code(share.name)}: {format_bytes(share.bytes)}" for rank, share in enumerate(named, 1)]
        lines.append("")
    lines += ["### What to do", ""]
    advice = [f"- {plain_markdown(item.message)} Change: {_code(item.setting)}" for item in device.recommendations]
    nothing = "- Nothing that these figures show." if is_partial else "- Nothing: no figure is beyond its limit."
    return [*lines, *(advice or [nothing]), ""]


def _findings(device: DeviceAnalysis) -> Iterable[str]:
    """Findings as list items, the most important first."""
    yield f"- {_peak_sentence(device)}"
    filled = [share for share in device.by_category if share.bytes][:_CATEGORIES]
    if filled:
        parts = [f"{plain_markdown(word_of(share.name))} {share.percent:.0f} %" for share in filled]
        yield f"- At the peak it held: {', '.join(parts)}."
    yield from (f"- {sentence}" for sentence in _allocator_sentences(device))
    if device.ooms:
        failed, _, more = failed_sentence(device).partition(", the last")
        yield f"- **{failed}**{f', the last{more}' * bool(more)}."
    if device.suspects:
        yield from (f"- **Suspected leak**: {plain_markdown(suspect.message)}" for suspect in device.suspects)
    elif device.peak.step >= 0:
        yield "- Nothing accumulates from step to step in this recording."


def _peak_sentence(device: DeviceAnalysis) -> str:
    """``'GPU 0 needed 11.57 GiB at its peak, in step 3 during the backward pass, at model.py:41 forward.'``."""
    peak = device.peak
    share = f" ({format_share(peak.bytes, device.total_bytes)})" if device.total_bytes else ""
    if peak.event < 0:
        size = f"{format_bytes(peak.bytes)}{share}"
        return f"{device_label(device.name)} needed {size}, all of it before the recording began."
    step = f", in step {peak.step}" if peak.step >= 0 else ""
    phase = "" if peak.phase == Phase.OTHER.name else f" during the {word_of(peak.phase)}"
    line = f", at {_code(peak.line)}" if peak.line else ""
    return f"{device_label(device.name)} needed {format_bytes(peak.bytes)}{share} at its peak{step}{phase}{line}."


def _allocator_sentences(device: DeviceAnalysis) -> Iterable[str]:
    """Efficiency at the peak, and the free memory at the end."""
    if words := efficiency_words(device):
        yield f"Allocator: {words}."
    free = device.fragmentation
    if free.free_bytes is None or device.reserved_bytes is None:
        return
    reserved, unused = format_bytes(device.reserved_bytes), format_bytes(free.free_bytes)
    text = f"Of {reserved} that were reserved at the end, {unused} were free"
    if free.cached_bytes is not None and free.fragmented_bytes is not None:
        text += f": {format_bytes(free.cached_bytes)} cached in whole segments,"
        text += f" {format_bytes(free.fragmented_bytes)} fragmented in gaps between used blocks"
    yield f"{text}. The next peak uses them again."


def comparison_text(analyses: Sequence[Analysis], odd: OddOne | None, written: str = "") -> str:
    """The README of the report of several recordings."""
    lines = [f"# Memory of {len(analyses)} recordings", "", *([f"- Written: {written}", ""] if written else [])]
    if odd is not None or len(analyses) > 2:
        lines += [plain_markdown(odd.message) if odd is not None else "None of them stands out.", ""]
    lines += [
        "| recording | device | peak | reserved | used at the peak | suspected leaks |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for analysis in analyses:
        device = analysis.main
        name = plain_markdown(analysis.name)
        name = f"**{name}**" if odd is not None and odd.name == analysis.name else name
        cells = (f"[{name}]({analysis.name}/README.md)", *side_cells(device), str(len(device.suspects) or ""))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", "Side by side: [report.html](report.html)."]) + "\n"


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


class Recorded(NamedTuple):
    """One trace or snapshot of a run."""

    analysis: Analysis
    """Without rows."""
    file: str
    link: str
    """Folder of its report, relative to the run's."""


def run_lines(report: RunReport, recorded: Sequence[Recorded]) -> list[str]:
    """The summary of a run for a terminal."""
    lasted = f" of {format_duration(report.seconds)}" if report.steps else ""
    lines = [f"run {report.name}{lasted}: {report.steps} steps, {report.status.sentence}"]
    reported = [finding for finding in standing(report.findings) if not finding.kind.is_quiet]
    lines += _verdicts(report, {finding.message for finding in reported})
    lines += [peak_line(peak, several_ranks=len(report.ranks) > 1) for peak in report.peaks]
    lines += [f"step {finding.last_step}: {finding_line(finding)}" for finding in reported] or ["no findings"]
    for recording in recorded:
        peak = recording.analysis.main.peak
        height = f"peak {format_bytes(peak.bytes)} of {recording.analysis.main.measure} bytes"
        step = f" in step {peak.step}," if peak.step >= 0 else ""
        lines.append(f"{recording.file}: {height}{step} in the {word_of(peak.phase)} {peak.line}".rstrip())
    lines += recorded_part(report, [recording.analysis for recording in recorded])
    return [*lines, *(f"not known: {note}" for note in report.notes)]


def recorded_part(report: RunReport, analyses: Sequence[Analysis]) -> list[str]:
    """What the recordings of a run show of it, where there are some: its highest step may be in none."""
    if not analyses:
        return []
    highest = {device.name: device.peak.bytes for analysis in analyses for device in analysis.devices}
    missing = [
        peak
        for peak in report.unrecorded_peaks
        if peak.bytes > _SAME * highest.get(peak.device, 0) and spike_at(peak, report.findings) is not None
    ]
    lines = [
        f"{peak_line(peak)}: no recording holds this step; another run does with {recording_of(peak.step)}"
        for peak in missing
    ]
    return [*lines, _RECORDED_PEAKS]


def run_of_recordings(report: RunReport, analyses: Sequence[Analysis]) -> list[str]:
    """What the recordings of a run do not show of it: its verdicts, of all steps, and where its highest step lies."""
    verdicts = _verdicts(report)
    whose = "" if _has_ranks(report) else "the run's "
    lines = [f"{whose}{verdict}" for verdict in verdicts[:_VERDICTS]]
    if len(verdicts) > _VERDICTS:
        lines.append(f"{len(verdicts) - _VERDICTS} more verdicts: tbmem report")
    return lines + recorded_part(report, analyses)


def _has_ranks(report: RunReport) -> bool:
    return any(verdict.rank for verdict in report.verdicts)


def _verdicts(report: RunReport, told: Collection[str] = ()) -> list[str]:
    """The verdicts, those that tell of something first; the sentences that are ``told`` beside them are left out."""
    verdicts = sorted(report.verdicts, key=lambda verdict: verdict.kind is FindingKind.STABLE)
    lines = [verdict_heading(one) if one.message in told else verdict_line(one) for one in verdicts]
    if not _has_ranks(report):
        return lines
    return [f"rank {one.rank}'s {line}" for one, line in zip(verdicts, lines, strict=True)]


def run_text(report: RunReport, recorded: Sequence[Recorded], written: str = "") -> str:
    """The README of the report of a run."""
    begun = f"begun {format_moment(report.started)}" if report.started else ""
    about = (begun, report.host, f"torch {report.torch}" if report.torch else "", report.status.sentence)
    told = plain_markdown(SEPARATOR.join(filter(None, about)))
    lines = [f"# Run {report.name}", "", f"- Folder: `{report.path}`", f"- {told}"]
    lines += [f"- Written: {written}"] if written else []
    lines += ["", "## What was seen", "", *(f"- {plain_markdown(line)}" for line in run_lines(report, ())[1:])]
    reported = [finding for finding in standing(report.findings) if not finding.kind.is_quiet]
    advice = dict.fromkeys(finding.advice for finding in reported if finding.advice)
    lines += ["", "## What to do", "", *(f"- {plain_markdown(text)}" for text in advice)] if advice else []
    if recorded:
        lines += ["", "## Recordings", "", "| recording | peak |", "|---|---:|"]
        for recording in recorded:
            peak = format_bytes(recording.analysis.main.peak.bytes)
            lines.append(f"| [{plain_markdown(recording.file)}]({recording.link}/README.md) | {peak} |")
        part = recorded_part(report, [recording.analysis for recording in recorded])
        lines += ["", *(f"- {plain_markdown(line)}" for line in part)]
    return "\n".join([*lines, "", *_file_table(*_RUN_FILES)]) + "\n"
