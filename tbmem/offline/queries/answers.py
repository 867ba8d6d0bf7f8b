"""A view's name and parameters go in; its answer, as ``present.views`` declares it, comes out: for tab and report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tbmem import __version__
from tbmem.analysis.runs.comparison import Comparison, compare_analyses, compare_runs, run_figures
from tbmem.analysis.runs.run_status import status_notes
from tbmem.errors import TbmemError, UsageError
from tbmem.offline.queries.params import Asked, MissingError, Params
from tbmem.offline.queries.run_reader import RunReader, reason
from tbmem.present.palette import category_colour
from tbmem.present.views.comparison import compare_view, estimate_curve, predicted_categories, side_of, sides_view
from tbmem.present.views.empty_states import (
    NO_ESTIMATE,
    NO_LOG,
    NO_LOGDIR,
    NO_RUNS,
    NO_SAMPLES,
    NOTHING_TO_COMPARE,
    ONE_RANK,
)
from tbmem.present.views.live import live_series, ooms_of, windows_of, x_of, x_of_step
from tbmem.present.views.operators import operators_view
from tbmem.present.views.overview import finding_item, index_view, overview_of, rank_columns
from tbmem.present.views.peak import peak_view, stack_view
from tbmem.present.views.range import LIMIT as BRUSH_LIMIT
from tbmem.present.views.range import brushed_view
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.run_schema import Empty, FileItem, Index, RankRecordings, RunItem
from tbmem.present.views.segments import segments_view
from tbmem.present.views.tensors import LIMIT, tensors_view
from tbmem.present.views.timeline import LARGEST, POINTS, timeline_view
from tbmem.sources.runs.catalog import ESTIMATE, LOG, Catalog, Run, RunFile

_LATEST = 20
_STATE_ROWS = 4000
_MOST_POINTS = 20_000
_MOST_RANKS = 64
_MOST_LIVE = 16_000
"""Points of all series of an answer together: two megabytes."""
_ESTIMATED = "estimate"


class Answers:
    """Answers questions on the runs of some log folders."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        source: str = "tensorboard",
        written: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.catalog = catalog
        self._reader = RunReader(catalog, now)
        self._source, self._written, self._now = source, written, now
        self._views: Mapping[str, Callable[[Asked], Any]] = {
            "index": self._index,
            "overview": self._overview,
            "live": self._live,
            "ranks": self._ranks,
            "compare": self._compare,
            "sides": self._side_by_side,
            "estimate": self._estimate,
            "timeline": lambda asked: timeline_view(
                *self._part(asked),
                points=asked.whole("points", POINTS, 10, _MOST_POINTS),
                largest=asked.whole("largest", LARGEST, 0, 1 << 31),
            ),
            "range": lambda asked: brushed_view(
                *self._part(asked), limit=asked.whole("limit", BRUSH_LIMIT, 0, 1 << 31)
            ),
            "stack": lambda asked: stack_view(self._subject(asked), asked.whole("row", None, 0, 1 << 62)),
            "peak": lambda asked: peak_view(self._subject(asked), asked.text("device")),
            "tensors": self._tensors,
            "segments": lambda asked: segments_view(self._subject(asked), asked.text("device")),
            "operators": lambda asked: operators_view(*self._part(asked)),
        }

    @property
    def views(self) -> tuple[str, ...]:
        """Names of all views."""
        return tuple(self._views)

    def answer(self, view: str, params: Params) -> Any:
        """One answer, plain JSON values.

        Raises:
            MissingError: There is no such view, run or file.
            OutsideError: The file lies outside of the log folder.
            UsageError: A parameter is wrong.
            FileFormatError: The file cannot be read.
        """
        if view not in self._views:
            raise MissingError(f"there is no view {view!r}; there are {', '.join(self._views)}")
        return self._views[view](Asked(params))

    def subject(self, run: str, file: str) -> RecordingView:
        """A recording, analysed.

        Raises:
            MissingError: There is no such run or file.
            FileFormatError: The file cannot be read.
        """
        found = self._reader.run(run)
        return self._reader.open(found, self._reader.file(found, file))

    def version(self, params: Params) -> tuple[str, ...]:
        """What answers on some runs depend on: another one when a file of them changes, or a run falls silent."""
        runs = self.catalog.runs()
        found = [runs[name] for key in ("run", "before", "after") for name in params.get(key, ()) if name in runs]
        return tuple(f"{run.version} {self._reader.status(run.of(LOG)).standing.value}" for run in found)

    def _subject(self, asked: Asked) -> RecordingView:
        run = self._reader.run(asked.text("run"))
        return self._reader.open(run, self._reader.file(run, asked.text("file")))

    def _part(self, asked: Asked) -> tuple[RecordingView, str | None, str | None, float | None, float | None]:
        subject = self._subject(asked)
        return subject, asked.text("device"), asked.text("axis"), asked.number("from"), asked.number("to")

    def _tensors(self, asked: Asked) -> Any:
        return tensors_view(
            self._subject(asked),
            asked.text("device"),
            search=asked.text("search") or "",
            category=asked.text("category") or "",
            sort=asked.text("sort") or "bytes",
            order=asked.text("order") or "desc",
            offset=asked.whole("offset", 0, 0, 1 << 62),
            limit=asked.whole("limit", LIMIT, 0, 1 << 31),
        )

    def _index(self, asked: Asked) -> Index:
        runs = self.catalog.runs()
        empty: Empty | None = None
        if not runs:
            empty = NO_RUNS if self.catalog.roots else NO_LOGDIR
        return index_view(
            [self._item(run) for run in runs.values()],
            version=__version__,
            source=self._source,
            written=self._written,
            notes=[f"{root.path}: no such folder" for root in self.catalog.roots if not root.path.is_dir()],
            empty=empty,
        )

    def _item(self, run: Run) -> RunItem:
        logs = run.of(LOG)
        status = self._reader.status(logs)
        return {
            "run": run.name,
            "status": status.standing.value,
            "status_text": status.sentence,
            "changed": run.changed,
            "version": run.version,
            "ranks": sorted({one.rank or 0 for one in run.files}),
            "logs": [self._reader.file_item(one) for one in logs],
            "recordings": [self._reader.file_item(one) for one in run.recordings],
            "estimates": [self._reader.file_item(one) for one in run.of(ESTIMATE)],
        }

    def _overview(self, asked: Asked) -> Any:
        runs = self.catalog.runs()
        names = asked.all("run")
        chosen = [self._reader.run(name) for name in names] if names else list(runs.values())[:_LATEST]
        now = self._now()
        return {
            "runs": [overview_of(self._reader.logged(run), now) for run in chosen],
            "left_out": 0 if names else len(runs) - len(chosen),
            "empty": None if chosen else NO_RUNS if self.catalog.roots else NO_LOGDIR,
        }

    def _live(self, asked: Asked) -> Any:
        x = asked.text("x") or "step"
        if x not in ("step", "time"):
            raise UsageError(f"x={x}: write step or time")
        names = asked.all("run")
        if not names:
            raise UsageError("run= is missing: name one run or several")
        asked_for = [self._reader.run(name) for name in dict.fromkeys(names)]
        runs = [self._reader.logged(run) for run in asked_for]
        places = [x_of(run, one, x) for run in runs for one in run.series]
        places = [place for place in places if len(place)]
        low = min((float(place[0]) for place in places), default=0.0)
        high = max((float(place[-1]) for place in places), default=0.0)
        begin, end = asked.number("from"), asked.number("to")
        if begin is not None and end is not None and begin > end:
            raise UsageError(f"from={begin:g} lies after to={end:g}")
        begin, end = low if begin is None else max(begin, low), high if end is None else min(end, high)
        count = sum(len(run.series) for run in runs)
        points = min(asked.whole("points", POINTS, 10, _MOST_POINTS), max(_MOST_LIVE // max(count, 1), 100))
        empty = None if places else NO_SAMPLES if any(run.states for run in runs) else NO_LOG
        return {
            "x": x,
            "extent": [low, high] if places else [],
            "range": [begin, end] if places else [],
            "series": [live_series(run, one, x, begin, end, points) for run in runs for one in run.series],
            "findings": [
                finding_item(run.name, one, x_of_step(run, one.rank, one.last_step, x))
                for run in runs
                for one in run.findings
            ],
            "windows": [window for run in runs for window in windows_of(run, x)],
            "ooms": [oom for run in runs for oom in ooms_of(run, x)],
            "running": any(not self._reader.status(run.of(LOG)).standing.is_over for run in asked_for if run.of(LOG)),
            "errors": [error for run in runs for error in run.errors],
            "empty": empty,
        }

    def _ranks(self, asked: Asked) -> Any:
        run = self._reader.run(asked.text("run"))
        logged = self._reader.logged(run)
        columns, odd = rank_columns(logged)
        recordings, errors = self._rank_recordings(run) if asked.text("recordings") else (None, [])
        ranks = set(columns["rank"]) | {one.rank for one in run.recordings if one.rank is not None}
        return {
            "run": run.name,
            "columns": columns,
            "odd": odd,
            "recordings": recordings,
            "errors": [*logged.errors, *errors],
            "empty": None if len(ranks) > 1 else ONE_RANK,
        }

    def _rank_recordings(self, run: Run) -> tuple[RankRecordings | None, list[FileItem]]:
        latest: dict[int, RunFile] = {}
        for one in sorted(run.recordings, key=lambda one: one.changed_ns):
            latest[one.rank or 0] = one
        errors: list[FileItem] = []
        found = self._opened(run, (one for _, one in sorted(latest.items())[:_MOST_RANKS]), errors)
        if not found:
            return None, errors
        mains = [subject.analysis.main for _, subject in found]
        sizes = [{share.name: share.bytes for share in main.by_category} for main in mains]
        names = [
            name
            for name in dict.fromkeys(name for size in sizes for name in size)
            if any(one.get(name) for one in sizes)
        ]
        columns: RankRecordings = {
            "rank": [one.rank or 0 for one, _ in found],
            "file": [one.file for one, _ in found],
            "device": [main.name for main in mains],
            "peak": [main.peak.bytes for main in mains],
            "categories": names,
            "colours": [category_colour(name) for name in names],
            "bytes": [[size.get(name, 0) for size in sizes] for name in names],
        }
        return columns, errors

    def _compare(self, asked: Asked) -> Any:
        pairs, subjects, errors = self._pair(asked)
        before, after = (run for run, _ in pairs)
        states = [self._reader.logged(run).states for run, _ in pairs]
        runs = compare_runs(*map(run_figures, states))
        now = self._now()
        standing = [
            f"{run.name}: {note}."
            for (run, _), own in zip(pairs, states, strict=True)
            for note in status_notes(own, now, "compared")
        ]
        first, second = subjects
        if first is not None and second is not None:
            found = compare_analyses(first.analysis, second.analysis)
        else:
            note = "Not both have recordings that can be read: only what their live logs say is compared."
            found = Comparison(before="", after="", devices=(), notes=(note,))
        return compare_view(
            replace(found, before=before.name, after=after.name, runs=runs, notes=(*found.notes, *standing)),
            (None if first is None else first.file, None if second is None else second.file),
            errors=errors,
            empty=NOTHING_TO_COMPARE,
        )

    def _side_by_side(self, asked: Asked) -> Any:
        pairs, subjects, _ = self._pair(asked)
        found = [side_of(one) for one in subjects if one is not None]
        same = len({one.run for one in found}) < len(found)
        return sides_view([one._replace(name=f"{one.run}/{one.name}" if same else one.run) for one in found])

    def _pair(self, asked: Asked) -> tuple[list[tuple[Run, str | None]], list[RecordingView | None], list[FileItem]]:
        """Two runs with the recordings that were asked for, what is compared of them, what cannot be read."""
        runs = [self._reader.run(asked.text(key), key) for key in ("before", "after")]
        pairs = list(zip(runs, (asked.text("before_file"), asked.text("after_file")), strict=True))
        errors: list[FileItem] = []
        return pairs, [self._highest(run, file, errors) for run, file in pairs], errors

    def _highest(self, run: Run, file: str | None, errors: list[FileItem]) -> RecordingView | None:
        """The recording that was asked for, else the one with the highest peak."""
        if file is not None:
            return self._reader.open(run, self._reader.file(run, file))
        return self._sides(run, errors)[1]

    def _estimate(self, asked: Asked) -> Any:
        run = self._reader.run(asked.text("run"))
        points = asked.whole("points", POINTS, 10, _MOST_POINTS)
        errors: list[FileItem] = []
        predicted, measured = self._sides(run, errors)
        summary = self._summary(run, errors)
        curves = [None if one is None else estimate_curve(one, None, points) for one in (predicted, measured)]
        peaks = [None if curve is None else curve["peak"] for curve in curves]
        if peaks[0] is None and summary is not None and isinstance(summary.get("peak_allocated"), int):
            peaks[0] = summary["peak_allocated"]
        both = predicted is not None and measured is not None
        return {
            "run": run.name,
            "predicted": curves[0],
            "measured": curves[1],
            "error_percent": round(100 * peaks[0] / peaks[1] - 100, 3) if peaks[0] and peaks[1] else None,
            "categories": predicted_categories(predicted, measured) if predicted and measured else None,
            "summary": summary,
            "notes": [] if both or not (predicted or summary) else ["Only one of the two is there."],
            "errors": errors,
            "empty": None if predicted is not None or summary is not None else NO_ESTIMATE,
        }

    def _sides(self, run: Run, errors: list[FileItem]) -> tuple[RecordingView | None, RecordingView | None]:
        """The prediction, and the measurement with the highest peak."""
        found = [subject for _, subject in self._opened(run, run.recordings, errors)]
        guesses = [one for one in found if one.analysis.source == _ESTIMATED]
        others = [one for one in found if one.analysis.source != _ESTIMATED]
        measured = max(others, key=lambda one: one.analysis.main.peak.bytes, default=None)
        return (guesses[-1] if guesses else None), measured

    def _opened(
        self, run: Run, files: Iterable[RunFile], errors: list[FileItem]
    ) -> list[tuple[RunFile, RecordingView]]:
        """Those recordings that can be read; the others are added to the errors."""
        found = []
        for one in files:
            try:
                found.append((one, self._reader.open(run, one)))
            except TbmemError:
                errors.append(self._reader.file_item(one))
        return found

    def _summary(self, run: Run, errors: list[FileItem]) -> dict[str, Any] | None:
        for one in run.of(ESTIMATE):
            try:
                found = json.loads(one.path.read_bytes())
                if isinstance(found, dict):
                    return found
                raise ValueError("not a JSON object")
            except (OSError, ValueError) as error:
                errors.append(self._reader.file_item(one, reason(error)))
        return None
