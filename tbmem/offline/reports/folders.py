"""Writes report folders of recordings, or of a run with its recordings: pictures, texts and a page."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from tbmem.analysis.recordings.category_rules import CategoryTable
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import odd_one
from tbmem.analysis.runs.run_report import RunReport, run_report
from tbmem.errors import FileFormatError, RunFolderError
from tbmem.model.files import PARTIAL_SUFFIX
from tbmem.model.redaction import NOTHING_REDACTED, Redaction
from tbmem.offline.analyze import analyze_recording, each, without_rows
from tbmem.offline.live_logs import RunLogs, read_run
from tbmem.offline.reports.pages import analysis_html, comparison_html, run_html, subject_of
from tbmem.present.figures.canvas import no_pictures
from tbmem.present.figures.figures import write_pictures
from tbmem.present.figures.series import draw_series
from tbmem.present.text.analysis_report import report_text
from tbmem.present.text.analysis_tables import analyses_view
from tbmem.present.text.readme import Recorded, comparison_text, findings_text, run_text
from tbmem.present.views.comparison import Side, side_of
from tbmem.sources.recording import read_recording
from tbmem.sources.runs.recording_files import RecordingFile, find_recordings
from tbmem.units import format_moment

RESULTS = "results"
"""Default parent folder of reports."""
_LATEST = "latest"
"""Link to the newest folder, beside it."""
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_NAME = 120
_Result = TypeVar("_Result")


def write_folder(
    out: str | os.PathLike[str], name: str, moment: float, write: Callable[[Path], _Result]
) -> tuple[Path, _Result]:
    """Fill the folder ``YYYYMMDD_HHMMSS_<name>`` under a temporary name, so that an incomplete one is never seen.

    It is renamed at the end, and the link ``latest`` beside it points to it. After an error nothing is left, not even
    the parent folder ``out`` if that is new.

    Raises:
        RunFolderError: The folder ``out`` cannot be made.
        OSError: It cannot be written.
    """
    parent = Path(out).expanduser()
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "this is a file" if isinstance(error, FileExistsError) else error.strerror
        raise RunFolderError(f"{parent}: no report can be written there: {reason}; --out names a folder") from error
    title = f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(moment))}_{clean_name(name)}"
    folder, final = parent / f".{title}.{os.getpid()}{PARTIAL_SUFFIX}", parent / title
    try:
        folder.mkdir()
        result = write(folder)
        for number in count(2):
            if not final.exists():
                break
            final = parent / f"{title}-{number}"
        folder.rename(final)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            for empty in missing:
                empty.rmdir()
        raise
    _point_to(final)
    return final, result


def clean_name(name: str) -> str:
    """A name that is valid for a folder on every system."""
    return _UNFIT.sub("_", name).strip("._-")[:_MAX_NAME] or "recording"


def _point_to(folder: Path) -> None:
    """Point the link ``latest`` to the folder, where links are possible and it is no file or folder of the user's."""
    link = folder.with_name(_LATEST)
    fresh = folder.with_name(f".{_LATEST}.{os.getpid()}{PARTIAL_SUFFIX}")
    if link.exists() and not link.is_symlink():
        return
    with contextlib.suppress(OSError, NotImplementedError):
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(folder.name, target_is_directory=True)
        fresh.replace(link)


class Report(NamedTuple):
    """The folder of a report on recordings, and its content."""

    folder: Path
    analyses: tuple[Analysis, ...]
    """Without their rows."""


def write_report(
    *sources: str | os.PathLike[str],
    out: str | os.PathLike[str] = RESULTS,
    name: str | None = None,
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.time,
) -> Report:
    """Analyze recordings and write a report folder.

    Args:
        *sources: Files, folders and patterns.
        out: Where the folder ``YYYYMMDD_HHMMSS_<name>`` is made, and the link ``latest`` to it.
        name: By default from the path: ``iter1_rank0``.
        table: Rules by which categories are inferred where there is no book.
        executor: Runs the analyses; its workers must see the same files. By default they run in this process.
        on_skip: Called with the reason, in one line, for each file of a folder that was skipped, and for the pictures
            where matplotlib is not installed.
        now: Unix time.

    Raises:
        FileFormatError: A file that was named is damaged or something else; nothing is left of the folder then.
        OSError: A file cannot be read or written.
    """
    files = find_recordings(sources, on_skip)
    moment = now()
    written = format_moment(moment)
    title = name or (files[0].name if len(files) == 1 else f"{len(files)}_recordings")

    def write(folder: Path) -> tuple[Analysis, ...]:
        rename = name if len(files) == 1 else None
        work = partial(_write_one, folder=folder, table=table, name=rename, written=written)
        parts = each(work, files, executor, on_skip)
        analyses = tuple(analysis for analysis, _ in parts)
        if len(parts) == 1:
            # a single recording has no sub-folder
            (inner,) = folder.iterdir()
            for path in inner.iterdir():
                path.rename(folder / path.name)
            inner.rmdir()
        else:
            odd = odd_one(analyses)
            texts = {
                "report.html": comparison_html(parts, odd, written),
                "README.md": comparison_text(analyses, odd, written),
                "comparison.json": json.dumps(analyses_view(analyses, odd), indent=2) + "\n",
            }
            _write_texts(folder, texts)
        return analyses

    report = Report(*write_folder(out, title, moment, write))
    _tell_of_missing_pictures(on_skip)  # not before: a damaged file is one line
    return report


def _tell_of_missing_pictures(on_skip: Callable[[str], None] | None) -> None:
    if on_skip is not None and (missing := no_pictures()):
        on_skip(f"pictures: {missing}")


def _write_one(
    file: RecordingFile,
    *,
    folder: Path,
    table: CategoryTable | None,
    name: str | None,
    written: str,
    redaction: Redaction = NOTHING_REDACTED,
) -> tuple[Analysis, Side]:
    """Write the report of one recording into a sub-folder; returns what comparisons need, without rows."""
    recording = read_recording(file.path, calls=True)
    analysis = analyze_recording(recording, file.path, name or file.name, table)
    subject = subject_of(analysis, recording.calls)
    own_folder = folder / file.name
    own_folder.mkdir()
    if not no_pictures():
        write_pictures(analysis, own_folder)
    texts = {
        "analysis_report.txt": report_text(analysis, written),
        "README.md": findings_text(analysis, written),
        "report.html": analysis_html(subject, written),
        "analysis.json": json.dumps(analysis.to_dict(), indent=2) + "\n",
    }
    _write_texts(own_folder, texts, redaction)
    return without_rows(analysis), side_of(subject)


def _write_texts(folder: Path, texts: Mapping[str, str], redaction: Redaction = NOTHING_REDACTED) -> None:
    for name, text in texts.items():
        # a page names no folder, and its scripts are not to be changed
        content = text if name.endswith(".html") else redaction.page(text)
        (folder / name).write_text(content, encoding="utf-8")


class WrittenRunReport(NamedTuple):
    """The folder of a run's report, and its content."""

    folder: Path
    report: RunReport
    recorded: tuple[Recorded, ...]


def recordings_of(run: str | os.PathLike[str]) -> tuple[RecordingFile, ...]:
    """Traces and snapshots of a run; there may be none."""
    try:
        return find_recordings([run])
    except FileFormatError:
        return ()


def read_run_report(run: str | os.PathLike[str], now: Callable[[], float] = time.time) -> RunReport:
    """Report of a run from its live logs; errors as in ``read_run``."""
    return _report_of(read_run(run), now)


def _report_of(logs: RunLogs, now: Callable[[], float]) -> RunReport:
    return run_report(logs.logs, logs.name, str(logs.folder), states=logs.states, now=now())


def _is_redacted(logs: RunLogs) -> bool:
    """Whether a rank of the run was configured with ``output.redact``."""
    configs = (header.get("config") for log in logs.logs for header in log.headers)
    outputs = (config.get("output") for config in configs if isinstance(config, Mapping))
    return any(output.get("redact") is True for output in outputs if isinstance(output, Mapping))


def analyze_recordings_of(
    report: RunReport,
    *,
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[Recorded, ...]:
    """Analyze the recordings of a run, without their rows; arguments as for ``write_report``."""
    return _recorded(partial(_analyze_one, table=table), recordings_of(report.path), executor, on_skip)


def _recorded(
    work: Callable[[RecordingFile], tuple[Analysis, str]],
    files: Sequence[RecordingFile],
    executor: Executor | None,
    on_skip: Callable[[str], None] | None,
) -> tuple[Recorded, ...]:
    """Recordings of a run with the results of ``work``: analyses and names; none if no file can be read."""
    try:
        parts = each(work, files, executor, on_skip)
    except FileFormatError as error:
        parts = ()
        if on_skip is not None:
            on_skip(str(error))
    names = {file.name: file.path.name for file in files}
    return tuple(Recorded(analysis, names[name], name) for analysis, name in parts)


def _analyze_one(file: RecordingFile, *, table: CategoryTable | None) -> tuple[Analysis, str]:
    recording = read_recording(file.path)
    return without_rows(analyze_recording(recording, file.path, file.name, table)), file.name


def _write_named(
    file: RecordingFile, *, folder: Path, table: CategoryTable | None, written: str, redaction: Redaction
) -> tuple[Analysis, str]:
    analysis, side = _write_one(file, folder=folder, table=table, name=None, written=written, redaction=redaction)
    return analysis, side.name


def write_run_report(
    run: str | os.PathLike[str],
    *,
    out: str | os.PathLike[str] = RESULTS,
    name: str | None = None,
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    on_skip: Callable[[str], None] | None = None,
    now: Callable[[], float] = time.time,
) -> WrittenRunReport:
    """Write a report folder of a run, also where its recordings cannot be read; arguments as for ``write_report``.

    Raises:
        FileFormatError: There is no log, or it is damaged; nothing is written then.
        UsageError: There are several runs in the folder.
        OSError: A file cannot be read or written.
    """
    logs = read_run(run)
    report = _report_of(logs, now)
    redaction = Redaction.of_this_machine() if _is_redacted(logs) else NOTHING_REDACTED
    files = recordings_of(report.path)
    moment = now()
    written = format_moment(moment)

    def write(folder: Path) -> tuple[Recorded, ...]:
        work = partial(_write_named, folder=folder, table=table, written=written, redaction=redaction)
        recorded = _recorded(work, files, executor, on_skip)
        windows = [dict(window) for window in report.windows if window["rank"] == report.ranks[0]]
        if report.series and not no_pictures():
            draw_series(report.name, report.series, report.findings, windows, folder / "memory_series.png")
        recordings = {item.file: item.analysis.to_dict() for item in recorded}
        texts = {
            "report.html": run_html(Path(report.path), report.name, written),
            "README.md": run_text(report, recorded, written),
            "run.json": json.dumps({**report.to_dict(), "recordings": recordings}, indent=2) + "\n",
        }
        _write_texts(folder, texts, redaction)
        return recorded

    folder, recorded = write_folder(out, name or report.name, moment, write)
    _tell_of_missing_pictures(on_skip)
    return WrittenRunReport(folder, report, recorded)
