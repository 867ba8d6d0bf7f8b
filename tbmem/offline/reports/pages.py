"""Pages that need nothing else: the Memory tab of a run, of a recording or of several, with all answers inside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tbmem import __version__
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import Comparison, OddOne, compare_analyses
from tbmem.analysis.runs.run_status import run_status
from tbmem.errors import RunFolderError, TbmemError, UsageError
from tbmem.model.files import complete_or_nothing
from tbmem.model.operator_calls import OperatorCalls
from tbmem.offline.analyze import Pair
from tbmem.offline.live_logs import read_run
from tbmem.offline.queries.answers import Answers
from tbmem.present.page import key_of, web_page
from tbmem.present.views.comparison import Side, compare_view, side_of, sides_view
from tbmem.present.views.empty_states import NOTHING_TO_COMPARE
from tbmem.present.views.operators import operators_view
from tbmem.present.views.overview import index_view
from tbmem.present.views.peak import peak_view, stack_view
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.run_schema import FileItem, RunItem
from tbmem.present.views.segments import segments_view
from tbmem.present.views.tensors import tensors_view
from tbmem.present.views.timeline import timeline_view
from tbmem.sources.runs.catalog import TRACE, Catalog, Root
from tbmem.units import format_moment

_RECORDINGS = 24
_BANDS = 1000
_TIMELINE_POINTS = 4000
"""For charts of 2000 columns: a report cannot ask again for as many as there are."""
_STACKS = 150
_POINTS = "4000"
_OF_RECORDING = ["timeline", "peak", "segments", "operators"]
"""Views of a recording: it has no log, and nothing to compare with."""
_OF_SEVERAL = ["compare"]
_ALL_PAIRS = 6
"""Of so many recordings any two can be compared; of more, each with the first, the last and the odd one."""
_CHANGES, _CHANGES_OF_MANY = 100, 30
_LEAST = 0.001
"""Of the largest peak: a GPU's trace has a few bytes on the CPU, which nobody asked for."""


def write_html(run: str | os.PathLike[str], path: str | os.PathLike[str], now: Callable[[], float] = time.time) -> Path:
    """Write the page of a run as one file.

    Raises:
        FileFormatError: There is no such run, or its log is damaged.
        UsageError: There are several runs in the folder.
        RunFolderError: The file cannot be written.
    """
    moment = format_moment(now())
    return write_page(run_html(run, moment), path)


def write_page(page: str, path: str | os.PathLike[str]) -> Path:
    """Write a page as one file.

    Raises:
        RunFolderError: It cannot be written.
    """
    target = Path(path).expanduser()
    try:
        with complete_or_nothing(target) as partial:
            partial.write_text(page, encoding="utf-8")
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written: {error.strerror or error}") from error
    return target


def run_html(run: str | os.PathLike[str], written: str) -> str:
    """The page of a run.

    Raises:
        FileFormatError: As ``write_html``.
        UsageError: There are several runs.
    """
    logs = read_run(run)
    catalog = Catalog([Root(logs.folder, own=logs.name)])
    answers = Answers(catalog, source="report", written=written)
    found = catalog.runs()
    if logs.name not in found:
        raise UsageError(f"{run}: the run is gone")
    return web_page(f"{logs.name} · tbmem", dict(_of_run(answers, logs.name)))


def _of_run(answers: Answers, run: str) -> Iterator[tuple[str, Any]]:
    """Every answer on a run; a recording that cannot be read has none, and is an error in the overview."""
    recordings = answers.catalog.runs()[run].recordings
    opened = []
    for one in recordings[:_RECORDINGS]:
        try:
            opened.append(answers.subject(run, one.file))
        except TbmemError:
            continue
    yield key_of("live", {"run": run}), answers.answer("live", {"run": [run], "points": [_POINTS]})
    yield (
        key_of("live", {"run": run, "x": "time"}),
        answers.answer("live", {"run": [run], "points": [_POINTS], "x": ["time"]}),
    )
    for view in ("overview", "estimate"):
        yield key_of(view, {"run": run}), answers.answer(view, {"run": [run]})
    yield key_of("ranks", {"run": run}), answers.answer("ranks", {"run": [run], "recordings": ["1"]})
    for subject in opened:
        yield from _of_recording(subject)
    index = answers.answer("index", {})
    if len(recordings) > _RECORDINGS:
        index["notes"].append(f"Of {len(recordings)} recordings the first {_RECORDINGS} are in this file.")
    yield "index", index
    yield "overview", key_of("overview", {"run": run})


def analysis_html(subject: RecordingView, written: str = "") -> str:
    """The page of one recording."""
    items = [recording_item(subject.run, subject.file, subject.analysis.source)]
    return _page(f"Memory of {subject.run}", items, _OF_RECORDING, dict(_of_recording(subject)), written)


def subject_of(analysis: Analysis, calls: OperatorCalls | None = None) -> RecordingView:
    """A recording that is a run of its own."""
    run = analysis.name or "recording"
    return RecordingView(run, Path(analysis.path).name or run, run, analysis, calls)


def recording_item(run: str, file: str, kind: str) -> RunItem:
    """The same in a list of runs."""
    item: FileItem = {
        "file": file,
        "name": run,
        "kind": kind or TRACE,
        "rank": None,
        "bytes": 0,
        "changed": 0.0,
        "error": None,
    }
    files = run_status([], 0.0)
    return {
        "run": run,
        "status": files.standing.value,
        "status_text": files.text,
        "changed": 0.0,
        "version": "",
        "ranks": [],
        "logs": [],
        "recordings": [item] if file else [],
        "estimates": [],
    }


def _of_recording(subject: RecordingView) -> Iterator[tuple[str, Any]]:
    """Every answer on a recording, and the stacks of what is largest."""
    main = subject.analysis.main
    rows: dict[int, None] = {}
    for device in subject.analysis.devices:
        if device is not main and device.peak.bytes <= _LEAST * main.peak.bytes:
            continue
        place: Mapping[str, str] = {"run": subject.run, "file": subject.file}
        if device is not main:
            place = {**place, "device": device.name}
        found: dict[str, Any] = {
            "timeline": timeline_view(subject, device.name, points=_TIMELINE_POINTS, largest=_BANDS),
            "peak": peak_view(subject, device.name),
            "tensors": tensors_view(subject, device.name),
            "segments": segments_view(subject, device.name),
            "operators": operators_view(subject, device.name),
        }
        for view, answer in found.items():
            key = key_of(view, place)
            yield key, answer
            if device is main:
                yield key_of(view, {**place, "device": device.name}), key
        rows |= dict.fromkeys(found["tensors"]["columns"]["row"][:_STACKS])
        bands = found["timeline"]["allocations"]["bands"]
        largest = sorted(range(len(bands["row"])), key=lambda at: -bands["bytes"][at])[:_STACKS]
        rows |= dict.fromkeys(bands["row"][at] for at in largest)
    for row in rows:
        yield key_of("stack", {"run": subject.run, "file": subject.file, "row": str(row)}), stack_view(subject, row)


class Compared(NamedTuple):
    """One of the recordings, as the page needs it."""

    analysis: Analysis
    """Its rows are not needed."""
    side: Side
    link: str = ""
    """Its own page, relative to this one."""


def comparison_html(found: Sequence[Compared], odd: OddOne | None = None, written: str = "") -> str:
    """The page of several recordings."""
    most = _CHANGES if len(found) <= _ALL_PAIRS else _CHANGES_OF_MANY
    answers: dict[str, Any] = {"sides": sides_view([one.side for one in found], odd, [one.link for one in found])}
    for before, after in _pairs(found, odd):
        comparison = compare_analyses(before.analysis, after.analysis)
        answers |= _compared(comparison, (before.side.file, after.side.file), most)
    items = [recording_item(one.side.run, one.side.file, one.analysis.source) for one in found]
    return _page(f"Memory of {len(found)} recordings", items, _OF_SEVERAL, answers, written)


def write_pair_html(pair: Pair, path: str | os.PathLike[str], now: Callable[[], float] = time.time) -> Path:
    """Write the page of two recordings or runs as one file.

    Raises:
        RunFolderError: The file cannot be written.
    """
    pair = _told_apart(pair)
    sides = [side_of(subject_of(one)) for one in pair.analyses or ()]
    files = [one.file for one in sides] or ["", ""]
    kinds = [one.source for one in pair.analyses or ()] or ["", ""]
    answers: dict[str, Any] = {
        "sides": sides_view(sides),
        **_compared(pair.compared(), (files[0] or None, files[1] or None)),
        **_compared(pair.reversed().compared(), (files[1] or None, files[0] or None)),
    }
    items = [recording_item(*one) for one in zip(pair.names, files, kinds, strict=True)]
    title = f"Memory of {pair.names[0]} and {pair.names[1]}"
    return write_page(_page(title, items, _OF_SEVERAL, answers, format_moment(now())), path)


def _told_apart(pair: Pair) -> Pair:
    """With two names, as the page's lists need them."""
    name, other = pair.names
    if name != other:
        return pair
    other = f"{name} again"
    analyses = pair.analyses and (pair.analyses[0], replace(pair.analyses[1], name=other))
    return pair._replace(names=(name, other), analyses=analyses)


def _pairs(found: Sequence[Compared], odd: OddOne | None) -> Iterator[tuple[Compared, Compared]]:
    ends = {0, len(found) - 1}
    for first, before in enumerate(found):
        for second, after in enumerate(found):
            telling = {first, second} & ends or (odd is not None and odd.name in (before.side.name, after.side.name))
            if first != second and (telling or len(found) <= _ALL_PAIRS):
                yield before, after


def _compared(comparison: Comparison, files: tuple[str | None, str | None], most: int = _CHANGES) -> dict[str, Any]:
    """Answers to what the view asks of a pair."""
    pair = {"before": comparison.before, "after": comparison.after}
    return {
        key_of("compare", pair): compare_view(comparison, files, most=most, empty=NOTHING_TO_COMPARE),
        key_of("sides", pair): "sides",
    }


def _page(title: str, items: Sequence[RunItem], views: Sequence[str], answers: Mapping[str, Any], written: str) -> str:
    """A page without a log folder: the list of runs is made up of recordings."""
    index = index_view(items, version=__version__, source="report", written=written or None)
    return web_page(f"{title} · tbmem", {"views": views, "index": index, **answers})
