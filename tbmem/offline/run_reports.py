"""A run's folder goes in; a folder with its live series, findings, windows and recordings, as pages, comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tbmem.analysis.category_rules import CategoryTable
from tbmem.analysis.run_story import RunStory, story_of
from tbmem.errors import FileFormatError
from tbmem.offline.live_logs import read_run
from tbmem.offline.recordings import Found, find_recordings
from tbmem.offline.reports import RESULTS, write_json, write_one, write_text
from tbmem.offline.result_folder import result_folder
from tbmem.offline.study import each
from tbmem.offline.web_reports import run_html
from tbmem.present.run_text import Recorded, run_text
from tbmem.present.series_picture import draw_series
from tbmem.units import format_moment


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
