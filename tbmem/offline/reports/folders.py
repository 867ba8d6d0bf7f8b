"""Writes report folders: pictures, texts and a page of recordings, or of a run with its recordings."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tbmem.analysis.recordings.category_rules import CategoryTable
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import OddOne, odd_one
from tbmem.analysis.runs.run_summary import RunStory, story_of
from tbmem.errors import FileFormatError
from tbmem.offline.analyze import analyze_recording, each, without_rows
from tbmem.offline.live_logs import read_run
from tbmem.offline.reports.pages import Compared, analysis_html, comparison_html, run_html, subject_of
from tbmem.offline.reports.result_folder import result_folder
from tbmem.present.figures.figures import write_pictures
from tbmem.present.figures.series import draw_series
from tbmem.present.text.analysis_report import report_text
from tbmem.present.text.analysis_tables import analyses_view
from tbmem.present.text.readme import Recorded, comparison_text, findings_text, run_text
from tbmem.present.views.comparison import Side, side_of
from tbmem.present.views.recording_view import RecordingView
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.recording_files import Found, find_recordings
from tbmem.units import format_moment

RESULTS = "results"
"""Where reports go unless another folder is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was written."""

    folder: Path
    analyses: tuple[Analysis, ...]
    """Without their rows."""
    odd: OddOne | None
    """The one that stands out."""


def write_report(
    *sources: str | os.PathLike[str],
    out: str | os.PathLike[str] = RESULTS,
    name: str | None = None,
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.time,
) -> Report:
    """Analyse recordings and write down what they mean.

    Args:
        *sources: Files, folders and patterns.
        out: Where the folder ``YYYYMMDD_HHMMSS_<name>`` is made, and the link ``latest`` to it.
        name: By default from the path: ``iter1_rank0``.
        table: Rules by which categories are inferred where there is no book.
        executor: Where to do it, if not here; its workers must see the same files.
        on_skip: Called with the reason why a file of a folder was passed over, in one line.
        now: Unix time.

    Raises:
        FileFormatError: A file that was named is damaged or something else; nothing is left of the folder then.
        OSError: A file cannot be read or written.
    """
    found = find_recordings(sources)
    moment = now()
    title = name or (found[0].name if len(found) == 1 else f"{len(found)}_recordings")
    with result_folder(out, title, moment) as folder:
        written = format_moment(moment)
        rename = name if len(found) == 1 else None
        work = partial(write_one, folder=folder.path, table=table, name=rename, written=written)
        parts = each(work, found, executor, on_skip)
        analyses = tuple(analysis for analysis, _ in parts)
        odd = odd_one(analyses)
        if len(parts) == 1:
            _lift(folder.path)
        else:
            _write_comparison(parts, odd, folder.path, written)
    return Report(folder=folder.final, analyses=analyses, odd=odd)


def write_one(
    found: Found, *, folder: Path, table: CategoryTable | None, name: str | None, written: str
) -> tuple[Analysis, Side]:
    """Write the report of one recording into a sub-folder of its name.

    Returns:
        The analysis without its rows, and what is shown of it beside others.
    """
    recording = read_recording(found.path, calls=True)
    analysis = analyze_recording(recording, found, table=table, name=name)
    place = folder / found.name
    place.mkdir()
    subject = subject_of(analysis, recording.calls)
    _write_analysis(subject, place, written)
    return without_rows(analysis), side_of(subject)


def _write_analysis(subject: RecordingView, folder: Path, written: str) -> None:
    """Write pictures, texts, figures and the page of one analysis into a folder that is there."""
    analysis = subject.analysis
    write_pictures(analysis, folder)
    write_text(folder / "analysis_report.txt", report_text(analysis, written))
    write_text(folder / "README.md", findings_text(analysis, written))
    write_text(folder / "report.html", analysis_html(subject, written))
    write_json(folder / "analysis.json", analysis.to_dict())


def _write_comparison(parts: tuple[tuple[Analysis, Side], ...], odd: OddOne | None, folder: Path, written: str) -> None:
    analyses = [analysis for analysis, _ in parts]
    compared = [Compared(analysis, side, f"{analysis.name}/report.html") for analysis, side in parts]
    write_text(folder / "report.html", comparison_html(compared, odd, written))
    write_text(folder / "README.md", comparison_text(analyses, odd, written))
    write_json(folder / "comparison.json", analyses_view(analyses, odd))


def _lift(folder: Path) -> None:
    """A single recording needs no sub-folder."""
    (inner,) = folder.iterdir()
    for path in inner.iterdir():
        path.rename(folder / path.name)
    inner.rmdir()


def write_text(path: Path, text: str) -> None:
    """Write a text, in UTF-8."""
    path.write_text(text, encoding="utf-8")


def write_json(path: Path, data: Any) -> None:
    """Write plain JSON values."""
    write_text(path, json.dumps(data, indent=2) + "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What was written."""

    folder: Path
    story: RunStory
    recorded: tuple[Recorded, ...]


def recordings_of(run: str | os.PathLike[str]) -> tuple[Found, ...]:
    """Traces and snapshots of a run; there may be none."""
    try:
        return find_recordings([run])
    except FileFormatError:
        return ()


def read_story(run: str | os.PathLike[str], now: Callable[[], float] = time.time) -> RunStory:
    """What happened in a run, from its live logs.

    Raises:
        FileFormatError: There is no log, or it is damaged.
        UsageError: There are several runs in the folder.
        OSError: A file cannot be read.
    """
    logs = read_run(run)
    return story_of(logs.logs, logs.name, str(logs.folder), states=logs.states, now=now())


def write_run_report(
    run: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = RESULTS,
    name: str | None = None,
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.time,
) -> RunReport:
    """Write down what happened in a run.

    Args:
        run: Its folder.
        out: Where the folder ``YYYYMMDD_HHMMSS_<name>`` is made, and the link ``latest`` to it.
        name: By default the run's.
        table: Rules by which categories are inferred where there is no book.
        executor: Where to analyse the recordings, if not here.
        on_skip: Called with the reason why a file was passed over, in one line.
        now: Unix time.

    Raises:
        FileFormatError: There is no log, or it is damaged; nothing is written then.
        UsageError: There are several runs in the folder.
        OSError: A file cannot be read or written.
    """
    story = read_story(run, now)
    found = recordings_of(story.path)
    moment = now()
    written = format_moment(moment)
    with result_folder(out, name or story.name, moment) as folder:
        work = partial(write_one, folder=folder.path, table=table, name=None, written=written)
        try:
            parts = each(work, found, executor, on_skip)
        except FileFormatError as error:
            # the run has its log; that none of its recordings can be read is worth a word, not an end
            parts = ()
            if on_skip is not None:
                on_skip(str(error))
        files = {one.name: one.path.name for one in found}
        recorded = tuple(Recorded(one, files.get(one.name, one.name), one.name) for one, _ in parts)
        windows = [dict(window) for window in story.windows if window["rank"] == story.ranks[0]]
        if story.series:
            draw_series(story.name, story.series, story.findings, windows, folder.path / "memory_series.png")
        write_text(folder.path / "report.html", run_html(run, written))
        write_text(folder.path / "README.md", run_text(story, recorded, written))
        write_json(
            folder.path / "run.json",
            {**story.to_dict(), "recordings": {one.file: one.analysis.to_dict() for one in recorded}},
        )
    return RunReport(folder=folder.final, story=story, recorded=recorded)
