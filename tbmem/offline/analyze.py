"""Reads recordings and runs from files, and analyzes, compares and replays them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import yaml

from tbmem.analysis.allocator.settings import parse_settings
from tbmem.analysis.allocator.what_if import WhatIf, what_ifs
from tbmem.analysis.recordings.analyzer import analyze as analyze_timeline
from tbmem.analysis.recordings.category_rules import DEFAULT_TABLE, CategoryTable
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import (
    Comparison,
    compare_analyses,
    compare_runs,
    peak_notes,
    problem_notes,
    run_figures,
    step_notes,
)
from tbmem.analysis.runs.run_status import RankState, status_notes
from tbmem.config.yaml_file import read_yaml
from tbmem.errors import ConfigError, FileFormatError, TbmemError, UsageError, described
from tbmem.model.address_book import AddressBook
from tbmem.model.files import MONITOR_LOG
from tbmem.model.gpus import Gpu
from tbmem.model.timeline import AllocationTimeline
from tbmem.offline.live_logs import read_log
from tbmem.regular_files import path_text
from tbmem.sources.recording import Recording, read_recording
from tbmem.sources.runs.recording_files import NothingFoundError, RecordingFile, find_recordings

Source = str | os.PathLike[str] | AllocationTimeline | Analysis
_NAMED = 5  # recordings, in an error
_Result = TypeVar("_Result")


def analyze(
    source: Source, *, book: AddressBook | None = None, table: CategoryTable | None = None, name: str | None = None
) -> Analysis:
    """Analyze one recording.

    Args:
        source: A file (snapshot, trace, timeline), a folder with one recording in it, or a timeline.
        book: Address book of the same window; by default the one beside the file.
        table: Rules by which categories are inferred without a book.
        name: Short name; by default from the path.

    Raises:
        FileFormatError: The file is damaged or no recording, or the folder holds none.
        UsageError: The folder holds several.
        OSError: The file cannot be read.
    """
    if isinstance(source, Analysis):
        return source
    if isinstance(source, AllocationTimeline):
        return analyze_timeline(source, book=book, table=table, name=name or source.source)
    found = find_recordings([source])
    if len(found) > 1:
        names = ", ".join(one.path.name for one in found[:_NAMED])
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise UsageError(f"{os.fspath(source)}: {len(found)} recordings; name one of {names}{more}")
    path, recording = found[0].path, read_recording(found[0].path)
    recording = recording if book is None else recording._replace(book=book)
    return analyze_recording(recording, path, name or found[0].name, table)


def analyze_recording(recording: Recording, path: Path, name: str, table: CategoryTable | None) -> Analysis:
    """Analyze what was read from the file ``path``; FileFormatError if that fails, however whole the file looks."""
    try:
        return analyze_timeline(recording.timeline, book=recording.book, table=table, name=name, path=str(path))
    except TbmemError:
        raise
    except Exception as error:
        raise FileFormatError(f"{path}: cannot be analyzed ({described(error)})") from error


def analyze_all(
    *sources: str | os.PathLike[str],
    table: CategoryTable | None = None,
    executor: Executor | None = None,
    rows: bool = True,
    on_skip: Callable[[str], None] | None = None,
) -> tuple[Analysis, ...]:
    """Analyze several recordings.

    Args:
        *sources: Files, folders and patterns.
        table: Rules by which categories are inferred without a book.
        executor: Runs the analyses, such as a process pool; by default they run here, one after the other.
        rows: Whether the analyses keep their rows, which are large to send between processes.
        on_skip: Called with the reason, in one line, for which a file of a folder was skipped.

    Raises:
        FileFormatError: A file that was named is damaged or no recording, or no file of a folder is a recording.
        OSError: A file cannot be read.
    """
    work = partial(_analyze_one, table=table, rows=rows)
    return each(work, find_recordings(sources, on_skip), executor, on_skip)


def each(
    work: Callable[[RecordingFile], _Result],
    files: Sequence[RecordingFile],
    executor: Executor | None,
    on_skip: Callable[[str], None] | None,
) -> tuple[_Result, ...]:
    """Call a function for each file, in order, with skipped files and errors as in ``analyze_all``."""
    calls = [executor.submit(work, file).result if executor else partial(work, file) for file in files]
    done: list[_Result] = []
    refused: list[FileFormatError] = []
    for file, call in zip(files, calls, strict=True):
        try:
            done.append(call())
        except FileFormatError as error:
            if file.named:
                raise
            refused.append(error)
    if not done and refused:
        raise refused[0]
    for reason in refused:
        if on_skip is not None:
            on_skip(str(reason))
    return tuple(done)


def _analyze_one(file: RecordingFile, *, table: CategoryTable | None, rows: bool) -> Analysis:
    analysis = analyze_recording(read_recording(file.path), file.path, file.name, table)
    return analysis if rows else without_rows(analysis)


def without_rows(analysis: Analysis) -> Analysis:
    """The same without its rows, small enough to send."""
    empty = AllocationTimeline(
        source=analysis.source, rows=analysis.timeline.rows.take(slice(0, 0)), devices=analysis.timeline.devices
    )
    return replace(analysis, timeline=empty, labels=replace(analysis.labels, code=analysis.labels.code[:0]))


def compare(before: Source, after: Source, *, table: CategoryTable | None = None) -> Comparison:
    """Compare two recordings or runs; errors as in ``analyze_all``.

    Args:
        before: A file, a folder, a timeline or an analysis. Of several in a folder the one with the highest peak, of
            two folders the two of one name, such as ``rank0_window2``, with the highest.
        after: The same.
        table: Rules by which categories are inferred without a book.
    """
    return read_pair(before, after, table=table).compared()


class Pair(NamedTuple):
    """Two recordings or runs that were read."""

    names: tuple[str, str]
    analyses: tuple[Analysis, Analysis] | None
    """With their rows; ``None`` if not both have recordings."""
    states: tuple[Sequence[RankState], Sequence[RankState]]
    """Ranks from the live logs; empty without a log."""
    found: tuple[int, int] = (1, 1)
    """How many recordings each side has."""
    skipped: tuple[str, ...] = ()
    """Why files in a folder were passed over, one line each."""

    def compared(self, now: float | None = None, without: str = "(traces, snapshots)") -> Comparison:
        """Compare the first with the second.

        Args:
            now: Unix time in seconds, of the status of runs; by default the current time.
            without: Words for the recordings that are missing, in the note that says so.
        """
        before, after = self.names
        runs = compare_runs(*map(run_figures, self.states))
        if self.analyses is not None:
            comparison = compare_analyses(*self.analyses)
            if max(self.found) > 1:
                each = f"Of {self.found[0]} and {self.found[1]} recordings {before} and {after} are compared"
                comparison = replace(comparison, notes=(*comparison.notes, f"{each}, the highest that both have."))
        else:
            note = f"Not both have recordings {without}: only what their live logs say is compared."
            comparison = Comparison(before=before, after=after, devices=(), notes=(note,))
        now = time.time() if now is None else now
        status = [
            f"{name}: {note}."
            for name, states in zip(self.names, self.states, strict=True)
            for note in status_notes(states, now, "compared")
            if runs
        ]
        notes = comparison.notes
        if runs:
            problems = chain(*map(problem_notes, self.names, self.states))
            steps = step_notes(self.names, self.states)
            notes = (*steps, *notes, *problems, *peak_notes(chain(*self.states)))
        skipped = (f"Passed over: {reason}." for reason in self.skipped)
        return replace(comparison, before=before, after=after, runs=runs, notes=(*skipped, *notes, *status))

    def reversed(self) -> Pair:
        """The second first."""
        analyses = self.analyses and self.analyses[::-1]
        return Pair(self.names[::-1], analyses, self.states[::-1], self.found[::-1], self.skipped)


def read_pair(before: Source, after: Source, *, table: CategoryTable | None = None) -> Pair:
    """Read two recordings or runs; arguments and errors as for ``compare``."""
    states = _states(before), _states(after)
    skipped: list[str] = []

    def recordings(source: Source) -> Sequence[Analysis]:
        try:
            return _analyses(source, table, skipped.append)
        except FileFormatError as error:
            is_missing = isinstance(error, NothingFoundError)
            if not (is_missing or _is_folder(source)) or not compare_runs(*map(run_figures, states)):
                raise
            if not is_missing:
                skipped.append(str(error))
            return ()

    found = recordings(before), recordings(after)
    if not all(found):
        names = [Path(source).name or os.fspath(source) for source in (before, after)]  # type: ignore[arg-type]
        return Pair((names[0], names[1]), None, states, skipped=tuple(skipped))  # only paths have logs
    first, second = _counterparts(*found)
    if first.path != second.path and (first.name == second.name or (_is_folder(before) and _is_folder(after))):
        first, second = (replace(each, name=f"{Path(each.path).parent.name}/{each.name}") for each in (first, second))
    return Pair((first.name, second.name), (first, second), states, (len(found[0]), len(found[1])), tuple(skipped))


def _states(source: Source) -> list[RankState]:
    """State of each live log of a run folder, a folder of runs or ranks, or a log itself."""
    if isinstance(source, (Analysis, AllocationTimeline)):
        return []
    path = Path(path_text(source))
    is_log = path.name == Path(MONITOR_LOG).name and path.is_file()
    return [read_log(log)[1] for log in ([path] if is_log else sorted(path.rglob(MONITOR_LOG)))]


def _is_folder(source: Source) -> bool:
    return not isinstance(source, (Analysis, AllocationTimeline)) and Path(source).is_dir()


def _analyses(source: Source, table: CategoryTable | None, on_skip: Callable[[str], None]) -> Sequence[Analysis]:
    if isinstance(source, (Analysis, AllocationTimeline)):
        return [analyze(source, table=table)]
    return analyze_all(source, table=table, on_skip=on_skip)


def _counterparts(before: Sequence[Analysis], after: Sequence[Analysis]) -> tuple[Analysis, Analysis]:
    """The recordings to compare: of one name if there are such, otherwise the highest of each side.

    A run's first window holds what later ones do not, such as the states that an optimizer makes in its first step.
    """

    def peak(analysis: Analysis) -> int:
        return analysis.main.peak.bytes

    by_name = {analysis.name: analysis for analysis in before}
    same = [(by_name[analysis.name], analysis) for analysis in after if analysis.name in by_name]
    return max(same, key=lambda pair: max(map(peak, pair)), default=(max(before, key=peak), max(after, key=peak)))


def replay_all(
    paths: Sequence[str | os.PathLike[str]], texts: Sequence[str], gpu: Gpu | None, on_skip: Callable[[str], None]
) -> dict[str, tuple[WhatIf, ...]]:
    """Replay recordings under other settings of the allocator; returns the replays of each device by short name.

    Args:
        paths: Files, folders and patterns.
        texts: Settings as in PYTORCH_ALLOC_CONF.
        gpu: Device of the replays; ``None`` for an unlimited one.
        on_skip: Called with the reason for which a file of a folder, or a device, was skipped.

    Raises:
        ConfigError: A text is not valid.
        FileFormatError: A file that was named has nothing to replay or is no recording, or no file of a folder has.
    """
    settings = list(dict.fromkeys(parse_settings(text) for text in texts))

    def replay(file: RecordingFile) -> tuple[str, tuple[WhatIf, ...]]:
        timeline = read_recording(file.path).timeline
        try:
            return file.name, what_ifs(timeline, settings, gpu, lambda reason: on_skip(f"{file.path}: {reason}"))
        except UsageError as error:
            raise FileFormatError(f"{file.path}: {error}") from error

    return dict(each(replay, find_recordings(paths, on_skip), None, on_skip))


def _reason(error: Exception, name: str) -> str:
    return getattr(error, "strerror", None) or str(error).removeprefix(f"{name}: ")


def load_rules(path: str | os.PathLike[str]) -> CategoryTable:
    """Read rules from a YAML file, which precede the default ones.

    The file is written ``categories: [{label: Vision, words: [patch_embed, vit], category: ACTIVATION}]``.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or has another structure.
    """
    name = os.fspath(path)
    try:
        data: Any = yaml.safe_load(read_yaml(name))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name}: not UTF-8 text; save it as UTF-8") from error
    except (OSError, FileFormatError) as error:
        raise ConfigError(f"{name}: cannot be read: {_reason(error, name)}") from error
    except Exception as error:  # yaml raises many kinds on values that are none
        raise ConfigError(f"{name}: not YAML: {' '.join(str(error).split()) or type(error).__name__}") from error
    rules = data.get("categories") if isinstance(data, dict) else data
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigError(f"{name}: holds no list 'categories' of rules, each with a label and words")
    try:
        return DEFAULT_TABLE.extended(rules)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error
