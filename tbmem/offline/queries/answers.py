"""Answers of all views on runs, as ``present.views`` declares them, for the Memory tab and for report pages."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tbmem import __version__
from tbmem.errors import FileFormatError, TbmemError, UsageError
from tbmem.offline.analyze import Pair
from tbmem.offline.queries.estimates import estimates_of, read_figures
from tbmem.offline.queries.run_reader import MissingError, RunReader
from tbmem.present.palette import category_colour
from tbmem.present.views import empty_states
from tbmem.present.views.comparison import compare_view, side_of, sides_view
from tbmem.present.views.events import LIMIT as EVENTS
from tbmem.present.views.events import events_view
from tbmem.present.views.live import cursor_of, is_same, live_series, rows_after, windows_of, x_of
from tbmem.present.views.live_marks import forecasts_of, marked_findings, marked_rows, ooms_of
from tbmem.present.views.operators import operators_view
from tbmem.present.views.overview import index_view, overview_of, rank_columns
from tbmem.present.views.peak import peak_view, stack_view
from tbmem.present.views.prediction import measured_view, prediction_view
from tbmem.present.views.range import LIMIT as BRUSH_LIMIT
from tbmem.present.views.range import brushed_view
from tbmem.present.views.recording_view import RecordingView
from tbmem.present.views.remedies import remedies_view
from tbmem.present.views.reserved import reserved_view, segment_view
from tbmem.present.views.run_schema import Empty, FileItem, RunItem
from tbmem.present.views.segments import segments_view
from tbmem.present.views.state import state_view
from tbmem.present.views.steps import steps_view
from tbmem.present.views.tensors import LIMIT, tensors_view
from tbmem.present.views.timeline import LARGEST, POINTS, timeline_view
from tbmem.present.views.triage import by_urgency, file_lines, triage_row, with_status
from tbmem.sources.runs.catalog import ESTIMATE, LOG, Catalog, Run, RunFile

Params = Mapping[str, Sequence[str]]


class QueryParams:
    """Parameters of a URL; one that is wrong, or given twice where one value is meant, raises a UsageError."""

    def __init__(self, params: Params) -> None:
        self._params = {name: [value for value in values if value != ""] for name, values in params.items()}

    def all(self, name: str) -> list[str]:
        """Every value."""
        return self._params.get(name, [])

    def text(self, name: str) -> str | None:
        """The value; ``None`` if it is not given."""
        values = self.all(name)
        if len(values) > 1:
            raise UsageError(f"{name}= is given {len(values)} times")
        return values[0] if values else None

    def number(self, name: str) -> float | None:
        """The value as a finite number."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise UsageError(f"{name}={text}: not a number")
        return value

    def until(self) -> float:
        """Time of the monotonic clock up to which a question ``within`` some seconds lets logs be read."""
        within = self.number("within")
        return math.inf if within is None else time.monotonic() + within

    def integer(self, name: str, default: int | None, least: int = 0, most: int = 1 << 62) -> int:
        """The value as an integer from ``least`` to ``most``; required without a default."""
        text = self.text(name)
        if text is None:
            if default is None:
                raise UsageError(f"{name}= is missing")
            return default
        try:
            value = int(text)
        except ValueError:
            raise UsageError(f"{name}={text}: not a whole number") from None
        if not least <= value <= most:
            raise UsageError(f"{name}={text}: not between {least} and {most}")
        return value


DEVICE_VIEWS: Mapping[str, Callable[[RecordingView, str | None], Any]] = {
    "peak": peak_view,
    "segments": segments_view,
    "steps": steps_view,
}
"""Answers on one device of a recording, by the names of their views: in the tab and on the page of a recording."""
_MAX_POINTS = 20_000
_MAX_RANKS = 64
_MAX_LIVE_POINTS = 16_000
"""Limit of the points of all series of an answer together: two megabytes."""
_MOST_BYTES = 1 << 50
_ESTIMATED = "estimate"


class Answers:
    """Answers of all views on the runs of some log folders."""

    def __init__(
        self, catalog: Catalog, source: str = "tensorboard", written: str = "", now: Callable[[], float] = time.time
    ) -> None:
        self.catalog = catalog
        self._reader = RunReader(catalog, now)
        self._source, self._written, self._now = source, written, now
        self._rows: dict[str, tuple[str, dict[str, Any]]] = {}
        self._views: Mapping[str, Callable[[QueryParams], Any]] = {
            "index": self._index,
            "progress": lambda params: self._progress(),
            "overview": self._overview,
            "remedies": self._remedies,
            "live": self._live,
            "ranks": self._ranks,
            "compare": self._compare,
            "sides": self._side_by_side,
            "estimate": self._estimate,
            "prediction": self._prediction,
            "timeline": lambda params: timeline_view(
                *self._part(params),
                points=params.integer("points", POINTS, 10, _MAX_POINTS),
                largest=params.integer("largest", LARGEST, most=1 << 31),
            ),
            "reserved": lambda params: reserved_view(
                *self._part(params),
                points=params.integer("points", POINTS, 10, _MAX_POINTS),
                largest=params.integer("largest", LARGEST, most=1 << 31),
            ),
            "segment": lambda params: segment_view(*self._device(params), params.integer("segment", None)),
            "range": lambda params: brushed_view(
                *self._part(params), limit=params.integer("limit", BRUSH_LIMIT, most=1 << 31)
            ),
            "events": self._events,
            "state": lambda params: state_view(
                *self._device(params),
                axis=params.text("axis"),
                at=params.number("at"),
                size=params.integer("size", 0, most=_MOST_BYTES) or None,
            ),
            "stack": lambda params: stack_view(self._subject(params), params.integer("row", None)),
            "tensors": self._tensors,
            "operators": lambda params: operators_view(*self._part(params)),
            **{name: partial(self._of_device, view) for name, view in DEVICE_VIEWS.items()},
        }

    def answer(self, view: str, params: Params) -> Any:
        """One answer as plain JSON values; errors as in ``RunReader``, also where a parameter is wrong."""
        if view not in self._views:
            raise MissingError(f"there is no view {view!r}; there are {', '.join(self._views)}")
        return self._views[view](QueryParams(params))

    def cancel(self, params: Params) -> None:
        """Stop the work of a number; errors as for ``answer``."""
        self._reader.cancel(QueryParams(params).integer("work", None))

    def _progress(self) -> Any:
        """The files that are being read."""
        now = time.monotonic()
        return {
            "work": [
                {"work": number, "name": one.name, "stage": one.stage, "share": one.share, "seconds": now - one.begun}
                for number, one in self._reader.work().items()
            ]
        }

    def subject(self, run: str | None, file: str | None) -> RecordingView:
        """A recording, analyzed; errors as for ``answer``."""
        return self._reader.recording(self._reader.run(run), file)

    def version(self, params: Params) -> tuple[str, ...]:
        """Cache key of answers on some runs: differs once one of their files or their status changes."""
        runs = self.catalog.runs()
        chosen = [runs[name] for key in ("run", "before", "after") for name in params.get(key, ()) if name in runs]
        return tuple(f"{run.version} {self._reader.status(run.of(LOG)).standing.value}" for run in chosen)

    def _subject(self, params: QueryParams) -> RecordingView:
        return self.subject(params.text("run"), params.text("file"))

    def _device(self, params: QueryParams) -> tuple[RecordingView, str | None]:
        return self._subject(params), params.text("device")

    def _of_device(self, view: Callable[[RecordingView, str | None], Any], params: QueryParams) -> Any:
        return view(*self._device(params))

    def _part(self, params: QueryParams) -> tuple[RecordingView, str | None, str | None, float | None, float | None]:
        return *self._device(params), params.text("axis"), params.number("from"), params.number("to")

    def _events(self, params: QueryParams) -> Any:
        return events_view(
            *self._part(params),
            rare=params.text("rare") is not None,
            search=params.text("search") or "",
            sort=params.text("sort") or "event",
            order=params.text("order") or "asc",
            offset=params.integer("offset", 0),
            limit=params.integer("limit", EVENTS, most=1 << 31),
        )

    def _tensors(self, params: QueryParams) -> Any:
        given = {name: params.text(name) for name in ("device", "search", "category", "sort", "order")}
        return tensors_view(
            self._subject(params),
            **{name: text for name, text in given.items() if text is not None},
            offset=params.integer("offset", 0),
            limit=params.integer("limit", LIMIT, most=1 << 31),
        )

    def _index(self, params: QueryParams) -> Any:
        runs = self.catalog.runs()
        return index_view(
            [self._item(run) for run in runs.values()],
            version=__version__,
            source=self._source,
            written=self._written or None,
            notes=[f"{root.path}: no such folder" for root in self.catalog.roots if not root.path.is_dir()],
            empty=None if runs else self._empty,
        )

    @property
    def _empty(self) -> Empty:
        return empty_states.NO_RUNS if self.catalog.roots else empty_states.NO_LOGDIR

    def _item(self, run: Run) -> RunItem:
        logs = run.of(LOG)
        status = self._reader.status(logs)
        return {
            "run": run.name,
            "status": status.standing.value,
            "status_text": status.sentence,
            "changed": run.changed,
            "version": run.version,
            "ranks": sorted({file.rank or 0 for file in run.files}),
            "logs": [self._reader.file_item(file) for file in logs],
            "recordings": [self._reader.file_item(file) for file in run.recordings],
            "estimates": [self._reader.file_item(file) for file in run.of(ESTIMATE)],
        }

    def _overview(self, params: QueryParams) -> Any:
        """The requested runs; without a name a table of all, or the only one there is."""
        runs, names = self.catalog.runs(), params.all("run")
        logged = [run for run in runs.values() if run.of(LOG)]
        is_table = not names and len(logged) != 1
        chosen = [self._reader.run(name) for name in names] if names else [] if is_table else logged
        now, until = self._now(), params.until()
        read = [(run, self._reader.logged(run, until)) for run in chosen]
        answers = [
            overview_of(logged, now, self._reader.status(run.of(LOG)) if logged.unread else None)
            for run, logged in read
        ]
        rows = by_urgency([self._row(run) for run in logged]) if is_table else []
        # after the logs were read, for those that cannot be read are known then
        alone, broken = ([], []) if names else file_lines([self._item(run) for run in runs.values()])
        return {
            "table": rows if is_table else None,
            "runs": answers,
            "alone": alone,
            "unreadable": broken,
            "empty": None if runs else self._empty,
        }

    def _row(self, run: Run) -> dict[str, Any]:
        """A run's line in the table; its log is read again only once it has changed."""
        known = self._rows.get(run.name)
        if known is None or known[0] != run.version:
            row = triage_row(overview_of(self._reader.logged(run), self._now()))
            known = self._rows[run.name] = run.version, row
        return with_status(known[1], self._reader.status(run.of(LOG)), run.changed)

    def _remedies(self, params: QueryParams) -> Any:
        run, file = self._reader.run(params.text("run")), params.text("file")
        subject = None if file is None else self._reader.recording(run, file)
        missing = params.integer("missing", 0)
        return remedies_view(subject, self._figures(run), missing)

    def _live(self, params: QueryParams) -> Any:
        x = params.text("x") or "step"
        if x not in ("step", "time"):
            raise UsageError(f"x={x}: write step or time")
        names = params.all("run")
        if not names:
            raise UsageError("run= is missing: name one run or several")
        requested = [self._reader.run(name) for name in dict.fromkeys(names)]
        until = params.until()
        runs = [self._reader.logged(run, until) for run in requested]
        pairs = [(run, series) for run in runs for series in run.series]
        axes = [axis for run, series in pairs if len(axis := x_of(run, series, x))]
        ooms = [oom for run in runs for oom in ooms_of(run, x)]
        low = min((float(axis[0]) for axis in axes), default=0.0)
        high = max([float(axis[-1]) for axis in axes] + [oom["x"] for oom in ooms], default=0.0)
        begin, end = params.number("from"), params.number("to")
        if begin is not None and end is not None and begin > end:
            raise UsageError(f"from={begin:g} lies after to={end:g}")
        begin, end = low if begin is None else max(begin, low), high if end is None else min(end, high)
        share = max(_MAX_LIVE_POINTS // max(len(pairs), 1), 100)
        points = min(params.integer("points", POINTS, 10, _MAX_POINTS), share)
        empty = None if axes else empty_states.NO_SAMPLES if any(run.states for run in runs) else empty_states.NO_LOG
        after = params.text("after")
        rows = rows_after(runs, after)
        known = rows is not None and after is not None and is_same(runs, after)
        statuses = [(run.name, self._reader.status(logs)) for run in requested if (logs := run.of(LOG))]
        return {
            "x": x,
            "cursor": cursor_of(runs),
            "more": rows is not None,  # series have only what came after the cursor; what is null is as before
            "extent": [low, high] if axes else [],
            "range": [begin, end] if axes else [],
            "series": [
                live_series(run, series, x, begin, end, points, after=first, marked=marked_rows(run, series))
                for (run, series), first in zip(pairs, rows or [0] * len(pairs), strict=True)
            ],
            "findings": None if known else [finding for run in runs for finding in marked_findings(run, x)],
            "windows": None if known else [window for run in runs for window in windows_of(run, x)],
            "ooms": ooms,
            "forecasts": [forecast for run in runs if not run.unread for forecast in forecasts_of(run, x)],
            "status": {name: status.to_dict() for name, status in statuses},
            # share of the logs that comes with the next answers
            "unread": max((run.unread for run in runs), default=0.0),
            "running": any(not status.standing.is_over for _, status in statuses),
            "notes": [note for run in runs for note in run.notes],
            "errors": [error for run in runs for error in run.errors],
            "empty": empty,
        }

    def _ranks(self, params: QueryParams) -> Any:
        run = self._reader.run(params.text("run"))
        logged = self._reader.logged(run)
        columns, odd = rank_columns(logged)
        errors = [*logged.errors]
        recordings = self._rank_recordings(run, errors) if params.text("recordings") else None
        ranks = set(columns["rank"]) | {file.rank for file in run.recordings if file.rank is not None}
        return {
            "run": run.name,
            "columns": columns,
            "odd": odd,
            "recordings": recordings,
            "notes": list(logged.notes),
            "errors": errors,
            "empty": None if len(ranks) > 1 else empty_states.ONE_RANK,
        }

    def _rank_recordings(self, run: Run, errors: list[Any]) -> dict[str, Any] | None:
        """The peak of the latest recording of each rank."""
        latest = {file.rank or 0: file for file in sorted(run.recordings, key=lambda file: file.changed_ns)}
        opened = self._opened(run, (file for _, file in sorted(latest.items())[:_MAX_RANKS]), errors)
        if not opened:
            return None
        mains = [subject.analysis.main for _, subject in opened]
        sizes = [{share.name: share.bytes for share in main.by_category} for main in mains]
        every = dict.fromkeys(name for size in sizes for name in size)
        names = [name for name in every if any(size.get(name) for size in sizes)]
        return {
            "rank": [file.rank or 0 for file, _ in opened],
            "file": [file.file for file, _ in opened],
            "device": [main.name for main in mains],
            "peak": [main.peak.bytes for main in mains],
            "categories": names,
            "colours": [category_colour(name) for name in names],
            "bytes": [[size.get(name, 0) for size in sizes] for name in names],  # by category, then by rank
        }

    def _compare(self, params: QueryParams) -> Any:
        errors: list[FileItem] = []
        (first, before), (second, after) = self._pair(params, errors)
        both = (before.analysis, after.analysis) if before is not None and after is not None else None
        states = self._reader.logged(first).states, self._reader.logged(second).states
        pair = Pair((first.name, second.name), both, states)
        return compare_view(
            pair.compared(self._now(), "that can be read"),
            (None if before is None else before.file, None if after is None else after.file),
            errors=errors,
            empty=empty_states.NOTHING_TO_COMPARE,
        )

    def _side_by_side(self, params: QueryParams) -> Any:
        sides = [side_of(subject) for _, subject in self._pair(params, []) if subject is not None]
        same = len({side.run for side in sides}) < len(sides)
        return sides_view([side._replace(name=f"{side.run}/{side.name}" if same else side.run) for side in sides])

    def _pair(self, params: QueryParams, errors: list[FileItem]) -> Iterator[tuple[Run, RecordingView | None]]:
        """Two runs, each with the requested recording, else the one with the highest peak."""
        for key in ("before", "after"):
            run, file = self._reader.run(params.text(key), key), params.text(f"{key}_file")
            yield run, self._sides(run, errors)[1] if file is None else self._reader.recording(run, file)

    def _estimate(self, params: QueryParams) -> Any:
        """The measurement of a run, and the estimates of the log folder that can be laid over it."""
        run, file = self._reader.run(params.text("run")), params.text("file")
        errors: list[FileItem] = []
        predicted, measured = self._sides(run, errors)
        if file is not None:
            measured = self._reader.recording(run, file)
        found = [files.item() for files in estimates_of(self.catalog.runs().values())]
        if predicted is not None and (own := {"run": run.name, "file": predicted.file}) not in found:
            found.append(own)
        return {
            "run": run.name,
            "estimates": sorted(found, key=lambda item: item["run"] != run.name),
            "measured": None if measured is None else measured_view(measured),
            "errors": errors,
            "empty": None if found else empty_states.NO_ESTIMATE,
        }

    def _prediction(self, params: QueryParams) -> Any:
        run, file = self._reader.run(params.text("run")), params.text("file")
        files = next((one for one in estimates_of([run]) if one.file == file), None)
        if files is None:
            return prediction_view(run.name, file or "", self._reader.recording(run, file), None)
        recording = None if files.recording is None else self._reader.open(run, files.recording)
        return prediction_view(run.name, files.file, recording, read_figures(files.figures))

    def _sides(self, run: Run, errors: list[FileItem]) -> tuple[RecordingView | None, RecordingView | None]:
        """The prediction, and the measurement with the highest peak."""
        subjects = [subject for _, subject in self._opened(run, run.recordings, errors)]
        predictions = [subject for subject in subjects if subject.analysis.source == _ESTIMATED]
        others = [subject for subject in subjects if subject.analysis.source != _ESTIMATED]
        measured = max(others, key=lambda subject: subject.analysis.main.peak.bytes, default=None)
        return (predictions[-1] if predictions else None), measured

    def _opened(
        self, run: Run, files: Iterable[RunFile], errors: list[FileItem]
    ) -> list[tuple[RunFile, RecordingView]]:
        """The recordings that can be read; the others are added to ``errors``."""
        opened = []
        for file in files:
            try:
                opened.append((file, self._reader.open(run, file)))
            except TbmemError:
                errors.append(self._reader.file_item(file))
        return opened

    def _figures(self, run: Run) -> dict[str, Any] | None:
        """The figures of the run's first estimate that can be read."""
        for file in run.of(ESTIMATE):
            with contextlib.suppress(FileFormatError):
                return read_figures(file)
        return None
