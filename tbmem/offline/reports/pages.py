"""Self-contained pages: the Memory tab of a run, a recording or several, with all answers embedded."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

from tbmem import __version__
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.runs.comparison import Comparison, OddOne, compare_analyses
from tbmem.analysis.runs.run_status import run_status
from tbmem.errors import TbmemError, UsageError
from tbmem.model.files import write_file
from tbmem.model.timeline_tables import OperatorCalls
from tbmem.offline.analyze import Pair, analyze
from tbmem.offline.live_logs import read_run, recordings_alone
from tbmem.offline.queries.answers import DEVICE_VIEWS, Answers
from tbmem.present.page import key_of, web_page
from tbmem.present.views.comparison import Side, compare_view, side_of, sides_view
from tbmem.present.views.empty_states import NOTHING_TO_COMPARE
from tbmem.present.views.operators import operators_view
from tbmem.present.views.overview import index_view
from tbmem.present.views.peak import stack_view
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.reserved import reserved_view
from tbmem.present.views.run_schema import FileItem, RunItem
from tbmem.present.views.tensors import tensors_view
from tbmem.present.views.timeline import timeline_view
from tbmem.sources.runs.catalog import TRACE, Catalog, Root, find_runs
from tbmem.units import format_moment

_VIEWS = ("overview", "live", "timeline", *DEVICE_VIEWS, "operators", "ranks", "compare", "estimate")
_MAX_RECORDINGS, _MAX_RUNS = 24, 12
_BANDS = 1000
_POINTS = 4000
"""Enough for charts of 2000 columns: a page cannot request more."""
_MAX_STACKS = 150
_ALL_PAIRS = 6
"""Up to so many recordings any two can be compared; of more, each with the first, the last and the outlier."""
_CHANGES, _CHANGES_OF_MANY = 100, 30
_MIN_PEAK_FRACTION = 0.001
"""Fraction of the largest peak below which a device is left out: a GPU's trace has a few bytes on the CPU."""


def write_html(
    run: str | os.PathLike[str],
    path: str | os.PathLike[str],
    now: Callable[[], float] = time.time,
    on_skip: Callable[[str], None] | None = None,
) -> Path:
    """Write the page of a run, or of recordings without a live log, as one file.

    Args:
        run: The run's folder, or recordings.
        path: The page.
        now: The moment that the page names, in seconds.
        on_skip: Called with the reason, in one line, for which a recording of the run is not on the page.

    Raises:
        FileFormatError: There is no such run, or its log is damaged.
        UsageError: There are several runs in the folder.
        RunFolderError: The file cannot be written.
    """
    return write_file(path, page_html(run, now, on_skip).encode())


def page_html(
    run: str | os.PathLike[str],
    now: Callable[[], float] = time.time,
    on_skip: Callable[[str], None] | None = None,
) -> str:
    """The page of a run, or of recordings without a live log; arguments and errors as in ``write_html``."""
    written, alone = format_moment(now()), recordings_alone(run)
    if alone is None:
        logs = read_run(run)
        return run_html(logs.folder, logs.name, written, on_skip)
    if alone.is_dir():
        folder = alone.absolute()
        return run_html(folder, folder.name or "run", written, on_skip)
    return analysis_html(subject_of(analyze(alone)), written)


def logdir_html(logdir: str | os.PathLike[str], now: Callable[[], float] = time.time) -> str:
    """The page of the newest runs in a log folder; of anything else, as ``page_html`` and with its errors."""
    try:
        runs = find_runs(logdir)[::-1]
    except UsageError:
        runs = []
    if len(runs) < 2:
        return page_html(logdir, now)
    shown = [Root(run.path.absolute(), own_run=run.name) for run in runs[:_MAX_RUNS]]
    note = f"Of {len(runs)} runs the {len(shown)} newest are on this page." if len(runs) > len(shown) else ""
    return runs_html(shown, Path(logdir).name or "runs", format_moment(now()), note)


def run_html(folder: Path, name: str, written: str, on_skip: Callable[[str], None] | None = None) -> str:
    """The page of the run in a folder."""
    return runs_html([Root(folder, own_run=name)], name, written, on_skip=on_skip)


def runs_html(
    folders: Sequence[Root],
    title: str,
    written: str,
    note: str = "",
    on_skip: Callable[[str], None] | None = None,
) -> str:
    """The page of some runs, given by their folders; ``on_skip`` as in ``write_html``."""
    answers = Answers(Catalog(folders), "report", written)
    names = [folder.own_run for folder in folders if folder.own_run in answers.catalog.runs()]
    if not names:
        raise UsageError(f"{folders[0].path}: the run is gone")
    index = answers.answer("index", {})
    found: dict[str, Any] = {"index": index}
    for name in names:
        found |= _run_answers(answers, name, _MAX_RECORDINGS // len(names) or 1, index["notes"], on_skip)
    found["overview"] = key_of("overview", {"run": names[0]}) if len(names) == 1 else answers.answer("overview", {})
    index["notes"] += [note] if note else []
    return web_page(f"{title} · tbmem", {"views": _filled_views(found), **found})


def _run_answers(
    answers: Answers, run: str, most: int, notes: list[str], on_skip: Callable[[str], None] | None
) -> Iterator[tuple[str, Any]]:
    """All answers on a run with ``most`` recordings; one that cannot be read is an error in the overview."""
    of_run = f" of {run}" if len(answers.catalog.runs()) > 1 else ""
    recordings = answers.catalog.runs()[run].recordings
    subjects = []
    for recording in recordings[:most]:
        try:
            subjects.append(answers.subject(run, recording.file))
        except TbmemError as error:
            if on_skip is not None:
                on_skip(str(error))
    live: dict[str, list[str]] = {"run": [run], "points": [str(_POINTS)]}
    yield key_of("live", {"run": run}), answers.answer("live", live)
    yield key_of("live", {"run": run, "x": "time"}), answers.answer("live", {**live, "x": ["time"]})
    overview = answers.answer("overview", {"run": [run]})
    yield key_of("overview", {"run": run}), overview
    yield from _estimate_answers(answers, run, [subject.file for subject in subjects])
    yield key_of("ranks", {"run": run}), answers.answer("ranks", {"run": [run], "recordings": ["1"]})
    for subject in subjects:
        yield from _recording_answers(subject)
    if len(recordings) > most:
        notes.append(f"Of {len(recordings)} recordings{of_run} the first {most} are in this file.")
    for story in overview["runs"][0]["stories"]:
        if query := story["remedies"]:
            yield key_of("remedies", query), answers.answer("remedies", {name: [query[name]] for name in query})


def _estimate_answers(answers: Answers, run: str, recordings: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Each recording's curve, and each estimate that can be laid over it."""
    first = answers.answer("estimate", {"run": [run]})
    yield key_of("estimate", {"run": run}), first
    if first["estimates"]:
        for file in recordings:
            yield (
                key_of("estimate", {"run": run, "file": file}),
                answers.answer("estimate", {"run": [run], "file": [file]}),
            )
    for item in first["estimates"]:
        with contextlib.suppress(TbmemError):
            answer = answers.answer("prediction", {name: [value] for name, value in item.items()})
            yield key_of("prediction", item), answer


def analysis_html(subject: RecordingView, written: str = "") -> str:
    """The page of one recording, which has no log."""
    found = dict(_recording_answers(subject))
    views = _filled_views(found) or ["timeline"]
    return _page(f"Memory of {subject.run}", [_item(subject)], views, found, written)


def _filled_views(answers: Mapping[str, Any]) -> list[str]:
    """The views with data in some answer; the page has no tab for the others."""
    filled = {key.partition("?")[0] for key, one in answers.items() if isinstance(one, dict) and not one.get("empty")}
    return [view for view in _VIEWS if view in filled]


def subject_of(analysis: Analysis, calls: OperatorCalls | None = None) -> RecordingView:
    """A recording as a run of its own."""
    run = analysis.name or "recording"
    return RecordingView(run, Path(analysis.path).name or run, run, analysis, calls)


def _recording_answers(subject: RecordingView) -> Iterator[tuple[str, Any]]:
    """All answers on a recording, with the stacks of the largest allocations."""
    main = subject.analysis.main
    rows: dict[int, None] = {}
    for device in subject.analysis.devices:
        if device is not main and device.peak.bytes <= _MIN_PEAK_FRACTION * main.peak.bytes:
            continue
        query = {"run": subject.run, "file": subject.file}
        if device is not main:
            query["device"] = device.name
        answers: dict[str, Any] = {
            "timeline": timeline_view(subject, device.name, points=_POINTS, largest=_BANDS),
            "reserved": reserved_view(subject, device.name, points=_POINTS, largest=_BANDS),
            "tensors": tensors_view(subject, device.name),
            "operators": operators_view(subject, device.name),
            **{name: view(subject, device.name) for name, view in DEVICE_VIEWS.items()},
        }
        for view, answer in answers.items():
            key = key_of(view, query)
            yield key, answer
            if device is main:
                yield key_of(view, {**query, "device": device.name}), key
        rows |= dict.fromkeys(answers["tensors"]["columns"]["row"][:_MAX_STACKS])
        bands = answers["timeline"]["allocations"]["bands"]
        largest = sorted(range(len(bands["row"])), key=lambda index: -bands["bytes"][index])[:_MAX_STACKS]
        rows |= dict.fromkeys(bands["row"][index] for index in largest)
    for row in rows:
        yield key_of("stack", {"run": subject.run, "file": subject.file, "row": str(row)}), stack_view(subject, row)


def comparison_html(recordings: Sequence[tuple[Analysis, Side]], odd: OddOne | None = None, written: str = "") -> str:
    """The page of several recordings, with links to the page of each; the analyses may be without their rows."""
    sides = [side for _, side in recordings]
    most = _CHANGES if len(recordings) <= _ALL_PAIRS else _CHANGES_OF_MANY
    answers: dict[str, Any] = {"sides": sides_view(sides, odd, [f"{side.name}/report.html" for side in sides])}
    ends = {sides[0].name, sides[-1].name, *([] if odd is None else [odd.name])}
    for (before, first), (after, second) in permutations(recordings, 2):
        if len(recordings) <= _ALL_PAIRS or {first.name, second.name} & ends:
            answers |= _pair_answers(compare_analyses(before, after), (first.file, second.file), most)
    items = [(side.run, side.file, analysis.source) for analysis, side in recordings]
    return _page(f"Memory of {len(recordings)} recordings", items, ["compare"], answers, written)


def write_pair_html(pair: Pair, path: str | os.PathLike[str], now: Callable[[], float] = time.time) -> Path:
    """Write the page of two recordings or runs as one file.

    Raises:
        RunFolderError: The file cannot be written.
    """
    if pair.names[0] == pair.names[1]:  # the page's lists need two names
        again = f"{pair.names[0]} again"
        analyses = pair.analyses and (pair.analyses[0], replace(pair.analyses[1], name=again))
        pair = pair._replace(names=(pair.names[0], again), analyses=analyses)
    subjects = [subject_of(analysis) for analysis in pair.analyses or ()]
    first, second = (subject.file for subject in subjects) if subjects else (None, None)
    answers: dict[str, Any] = {
        "sides": sides_view([side_of(subject) for subject in subjects]),
        **_pair_answers(pair.compared(), (first, second)),
        **_pair_answers(pair.reversed().compared(), (second, first)),
    }
    items = [_item(subject) for subject in subjects] or [(name, "", "") for name in pair.names]
    title = f"Memory of {pair.names[0]} and {pair.names[1]}"
    return write_file(path, _page(title, items, ["compare"], answers, format_moment(now())).encode())


def _pair_answers(comparison: Comparison, files: tuple[str | None, str | None], most: int = _CHANGES) -> dict[str, Any]:
    """Answers of the comparison view on a pair."""
    pair = {"before": comparison.before, "after": comparison.after}
    return {
        key_of("compare", pair): compare_view(comparison, files, most=most, empty=NOTHING_TO_COMPARE),
        key_of("sides", pair): "sides",
    }


def _item(subject: RecordingView) -> tuple[str, str, str]:
    return subject.run, subject.file, subject.analysis.source


def _page(
    title: str, items: Sequence[tuple[str, str, str]], views: Sequence[str], answers: Mapping[str, Any], written: str
) -> str:
    """A page without a log folder, of recordings given by run, file and source."""
    status = run_status([], 0.0)
    runs: list[RunItem] = []
    for run, file, kind in items:
        item = FileItem(file=file, name=run, kind=kind or TRACE, rank=None, bytes=0, changed=0.0, error=None)
        runs.append(
            {
                "run": run,
                "status": status.standing.value,
                "status_text": status.text,
                "changed": 0.0,
                "version": "",
                "ranks": [],
                "logs": [],
                "recordings": [item] if file else [],
                "estimates": [],
            }
        )
    index = index_view(runs, version=__version__, source="report", written=written or None)
    return web_page(f"{title} · tbmem", {"views": views, "index": index, **answers})
