"""Reads and analyses recordings, one file or many on any executor, and compares two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from tbmem.analysis.recordings.analyzer import analyze as analyze_timeline
from tbmem.analysis.recordings.category_rules import CategoryTable
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import Comparison, RunFigures, compare_analyses, compare_runs, run_figures
from tbmem.analysis.runs.run_status import RankState, status_notes
from tbmem.errors import FileFormatError, UsageError
from tbmem.model.address_book import AddressBook
from tbmem.model.files import MONITOR_LOG
from tbmem.model.timeline import AllocationTimeline
from tbmem.offline.live_logs import read_log
from tbmem.sources.recording import Recording, read_recording
from tbmem.sources.runs.recording_files import NothingFoundError, RecordingFile, find_recordings

Source = str | os.PathLike[str] | AllocationTimeline | Analysis
_Result = TypeVar("_Result")


def analyze(
    source: Source,
    *,
    book: AddressBook | None = None,
    table: CategoryTable | None = None,
    name: str | None = None,
) -> Analysis:
    """Say what one recording means.

    Args:
        source: A file (snapshot, trace, timeline), a folder with one recording in it, or a timeline.
        book: Address book of the same window; by default the one that lies beside the file.
        table: Rules by which categories are inferred where there is no book.
        name: Short name; by default from the path.

    Raises:
        FileFormatError: The file is damaged or something else, or the folder holds none or several.
        OSError: The file cannot be read.
    """
    if isinstance(source, Analysis):
        return source
    if isinstance(source, AllocationTimeline):
        return analyze_timeline(source, book=book, table=table, name=name or source.source)
    found = find_recordings([source])
    if len(found) > 1:
        raise UsageError(f"{os.fspath(source)}: {len(found)} recordings; name one, or use analyze_all() for all")
    return analyze_recording(read_recording(found[0].path), found[0], book=book, table=table, name=name)


def analyze_recording(
    recording: Recording,
    found: RecordingFile,
    *,
    book: AddressBook | None = None,
    table: CategoryTable | None = None,
    name: str | None = None,
) -> Analysis:
    """Analyse what was read from a file; arguments as for ``analyze``."""
    return analyze_timeline(
        recording.timeline,
        book=recording.book if book is None else book,
        table=table,
        name=name or found.name,
        path=str(found.path),
    )


def analyze_all(
    *sources: str | os.PathLike[str],
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    rows: bool = True,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[Analysis, ...]:
    """Say what several recordings mean.

    Args:
        *sources: Files, folders and patterns.
        table: Rules by which categories are inferred where there is no book.
        executor: Where to do it, a process pool or a cluster's own; by default here, one after the other.
        rows: Whether the analyses keep their rows, which are large to send from process to process.
        on_skip: Told why a file of a folder was passed over, in one line.

    Raises:
        FileFormatError: A file that was named is damaged or something else; or no file of a folder is a recording.
        OSError: A file cannot be read.
    """
    work = partial(_analyze_one, table=table, rows=rows)
    return each(work, find_recordings(sources), executor, on_skip)


def each(
    work: Callable[[RecordingFile], _Result],
    files: Sequence[RecordingFile],
    executor: Executor | None,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[_Result, ...]:
    """Do something with each file, in order; files that only lay in a folder may turn out to be something else.

    Raises:
        FileFormatError: As ``analyze_all``.
    """
    calls = [executor.submit(work, found).result if executor else partial(work, found) for found in files]
    done: list[_Result] = []
    refused: list[FileFormatError] = []
    for found, call in zip(files, calls, strict=True):
        try:
            done.append(call())
        except FileFormatError as error:
            if found.named:
                raise
            refused.append(error)
    if not done and refused:
        raise refused[0]
    for reason in refused:
        if on_skip is not None:
            on_skip(str(reason))
    return tuple(done)


def _analyze_one(found: RecordingFile, *, table: CategoryTable | None, rows: bool) -> Analysis:
    analysis = analyze_recording(read_recording(found.path), found, table=table)
    return analysis if rows else without_rows(analysis)


def without_rows(analysis: Analysis) -> Analysis:
    """The same without its rows: small enough to send."""
    empty = AllocationTimeline(
        source=analysis.source, rows=analysis.timeline.rows.take(slice(0, 0)), devices=analysis.timeline.devices
    )
    return replace(analysis, timeline=empty, labels=replace(analysis.labels, code=analysis.labels.code[:0]))


def compare(before: Source, after: Source, *, table: CategoryTable | None = None) -> Comparison:
    """Say what grew from one recording or run to another.

    Args:
        before: A file, a folder, a timeline or an analysis; of several in a folder the one with the highest peak.
        after: The same.
        table: Rules by which categories are inferred where there is no book.

    Raises:
        FileFormatError: As ``analyze_all``.
        OSError: A file cannot be read.
    """
    return read_pair(before, after, table=table).compared()


class Pair(NamedTuple):
    """Two recordings or runs, read."""

    names: tuple[str, str]
    analyses: tuple[Analysis, Analysis] | None
    """With their rows; ``None`` if not both have recordings."""
    figures: tuple[Mapping[str, RunFigures], Mapping[str, RunFigures]]
    """By device, what the live logs say; empty where there is none."""
    standing: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Of each that has not ended in order, how far it came."""

    def compared(self) -> Comparison:
        """What grew from the first to the second."""
        runs = compare_runs(*self.figures)
        pairs = zip(self.names, self.standing, strict=True)
        standing = tuple(f"{name}: {note}." for name, notes in pairs for note in notes) if runs else ()
        if self.analyses is not None:
            found = compare_analyses(*self.analyses)
            return replace(found, runs=runs, notes=(*found.notes, *standing))
        note = "Not both have recordings (traces, snapshots): only what their live logs say is compared."
        return Comparison(before=self.names[0], after=self.names[1], devices=(), runs=runs, notes=(note, *standing))

    def reversed(self) -> Pair:
        """The second first."""
        analyses = None if self.analyses is None else self.analyses[::-1]
        return Pair(self.names[::-1], analyses, self.figures[::-1], self.standing[::-1])


def read_pair(before: Source, after: Source, *, table: CategoryTable | None = None) -> Pair:
    """Read what is to be compared; arguments and errors as for ``compare``."""
    states = _states(before), _states(after)
    figures = run_figures(states[0]), run_figures(states[1])
    now = time.time()
    one, other = (tuple(status_notes(each, now, "compared")) for each in states)
    try:
        analyses = _told_apart(_highest(before, table), _highest(after, table))
    except NothingFoundError:
        if not compare_runs(*figures):
            raise
        return Pair((_name(before), _name(after)), None, figures, (one, other))
    return Pair((analyses[0].name, analyses[1].name), analyses, figures, (one, other))


def _told_apart(before: Analysis, after: Analysis) -> tuple[Analysis, Analysis]:
    """With the names of their folders where the short names are the same."""
    if before.name != after.name or before.path == after.path:
        return before, after
    one, other = (f"{Path(each.path).parent.name}/{each.name}" for each in (before, after))
    return replace(before, name=one), replace(after, name=other)


def _states(source: Source) -> list[RankState]:
    """Where each live log stands of a run folder, a folder of runs or ranks, or a log itself."""
    if isinstance(source, (Analysis, AllocationTimeline)):
        return []
    path = Path(source)
    name = Path(MONITOR_LOG).name
    logs = sorted(path.rglob(MONITOR_LOG)) if path.is_dir() else [path] if path.name == name and path.exists() else []
    return [state for _, state in map(read_log, logs)]


def _name(source: Source) -> str:
    if isinstance(source, Analysis):
        return source.name
    return source.source if isinstance(source, AllocationTimeline) else Path(source).name or os.fspath(source)


def _highest(source: Source, table: CategoryTable | None) -> Analysis:
    if isinstance(source, (Analysis, AllocationTimeline)):
        return analyze(source, table=table)
    return max(analyze_all(source, table=table), key=lambda analysis: analysis.main.peak.bytes)
