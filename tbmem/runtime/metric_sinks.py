"""Passes scalars, findings and the summary on to other loggers (wandb, MLflow, ...), each in a thread of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tbmem.analysis.runs.device_history import RunPeak
from tbmem.errors import ConfigError, MissingDependencyError, did_you_mean
from tbmem.model.finding import Finding, Severity
from tbmem.model.monitor_log import LogRecord
from tbmem.model.run_summary import Peak
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.scalars import scalar_values, summary_values
from tbmem.requirements import packages_of
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.worker import Worker

GROUP = "tbmem.sinks"
"""Entry points by which a package adds a sink that a configuration can name."""
_OWN = {
    "wandb": "tbmem.sinks.wandb:WandbSink",
    "mlflow": "tbmem.sinks.mlflow:MlflowSink",
    "comet": "tbmem.sinks.comet:CometSink",
    "prometheus": "tbmem.sinks.prometheus:PrometheusSink",
    "opentelemetry": "tbmem.sinks.opentelemetry:OpenTelemetrySink",
}
"""tbmem's own, loaded by name as those of packages are: each needs a library that may be missing."""
_WAITING = 10_000
"""Points and findings that may wait for a sink that does not respond."""
_ALONE_SECONDS = 60.0
"""Time in training without an active run of the program's own, after which a sink begins one."""
_JOIN_SECONDS = 5.0
"""Maximum time that the end of a run waits for all sinks together."""


V = TypeVar("V")


class RunInfo(NamedTuple):
    """The run whose figures a sink receives."""

    name: str
    folder: Path | None = None
    rank: int = 0

    @property
    def label(self) -> str:
        """The name, with the rank unless it is 0."""
        return f"{self.name}-rank{self.rank}" if self.rank else self.name


class Point(NamedTuple):
    """The scalars of one step."""

    step: int
    time: float
    """Unix time in seconds."""
    values: Mapping[str, float]
    """By TensorBoard's tags, in its units; of a rank other than 0 below ``rank<N>/``."""
    samples: Sequence[MemorySample]
    """The same in bytes, one sample per device."""


class Summary(NamedTuple):
    """The end of a run."""

    values: Mapping[str, str | float]
    """Verdict and peak by tags, as in ``Point.values``."""
    verdicts: Sequence[Finding] = ()
    peaks: Sequence[Peak] = ()


class MetricSink:
    """A destination of scalars, findings and the summary: the base class of all sinks, which do nothing by default.

    All methods but ``join`` are called in a thread of the sink's own. One that raises switches the sink off.
    """

    name = ""

    def join(self) -> bool:
        """Look for an active run of the program itself, which is then used and never ended.

        Called in the training thread until it returns true, or ``open`` was called; must take microseconds.
        """
        return True

    def open(self, run: RunInfo) -> None:
        """Begin a run of tbmem's own unless one was joined; called once, before the first point."""

    def log(self, points: Sequence[Point]) -> None:
        """Log points, in the order of their steps."""

    def alert(self, finding: Finding) -> None:
        """Log a finding, a warning or worse."""

    def summarize(self, summary: Summary) -> None:
        """Log verdict and peak of the run."""

    def flush(self) -> None:
        """Pass on what has been logged; called after each batch, which comes at most twice a second."""

    def close(self) -> None:
        """Flush, and end a run of tbmem's own."""


def _calls_for_attention(finding: Finding) -> bool:
    return not finding.kind.is_quiet and finding.severity is not Severity.INFO


Sinks = str | MetricSink | Sequence[str | MetricSink]


def find_sinks(named: Sequence[str], given: Sinks = ()) -> list[MetricSink]:
    """The sinks of a configuration (``output.sinks``) and those given in Python, by name or as objects.

    Raises:
        ConfigError: A name is unknown, or what follows its colon is wrong.
        MissingDependencyError: The library of a sink is not installed.
    """
    several: Any = given
    is_one = isinstance(given, (str, MetricSink)) or not isinstance(given, Iterable)
    others = [several] if is_one else list(several)
    for other in others:
        if not isinstance(other, (str, MetricSink)):
            raise ConfigError(f"sinks: takes names such as 'wandb' and objects of tbmem.sinks (got {other!r})")
    return [_load(each) if isinstance(each, str) else each for each in dict.fromkeys([*named, *others])]


def _load(text: str) -> MetricSink:
    """The sink of ``'wandb'`` or ``'prometheus:9464'``."""
    name, _, target = text.partition(":")
    entry = _entry(name)
    try:
        make = entry.load()
    except ImportError as error:
        package = entry.dist.name if entry.dist is not None else "tbmem"
        install = packages_of(name, package) or f"'{package}[{name}]'"
        reason = f"output.sinks: {name} cannot be loaded ({error}): pip install {install}"
        raise MissingDependencyError(" ".join(reason.split())) from error
    try:
        sink: MetricSink = make(target) if target else make()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"output.sinks: {text}: {error}") from error
    return sink


def _entry(name: str) -> EntryPoint:
    if name in _OWN:
        return EntryPoint(name, _OWN[name], GROUP)
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        hint = did_you_mean(name, [*_OWN, *known]) or f"there are {', '.join([*_OWN, *known])}"
        raise ConfigError(f"output.sinks: no sink {name!r}; {hint}")
    return known[name]


class _Feed:
    """Hands one sink what it is due, once it has a run."""

    def __init__(self, sink: MetricSink, run: RunInfo, guard: Guard) -> None:
        self.worker: Worker[Point | Finding | Summary] = Worker(f"tbmem {sink.name}", self._handle, _WAITING)
        self.part = f"sink {sink.name or type(sink).__name__}"
        self.sink = sink
        self._run = run
        self._guard = guard
        self._held: list[Point | Finding | Summary] = []
        self._began: float | None = None
        self._has_joined = self._is_open = False

    def join(self) -> None:
        """Look for the program's run, unless the sink has one."""
        if not (self._has_joined or self._is_open):
            self._has_joined = bool(self._guard.run(self.part, self.sink.join))

    def give_up(self) -> None:
        """Report a sink that has not ended in time."""
        self._guard.fail(self.part, TimeoutError(f"no answer in the last {_JOIN_SECONDS:g} seconds"))

    def _handle(self, items: Sequence[Point | Finding | Summary]) -> None:
        if self.part in self._guard.failed:
            return
        self._held = [*self._held, *items][-_WAITING:]
        is_last = isinstance(items[-1], Summary)
        if not self._is_open:
            self._began = self._began or time.monotonic()
            if not (self._has_joined or is_last or time.monotonic() - self._began >= _ALONE_SECONDS):
                return
            self._is_open = True
            self._guard.run(self.part, self.sink.open, self._run)
        held, self._held = self._held, []
        for kind, group in groupby(held, type):
            self._pass_on(kind, list(group))
        self._guard.run(self.part, self.sink.flush)
        if is_last:
            with contextlib.suppress(Exception):  # a sink that has failed was reported
                self.sink.close()

    def _pass_on(self, kind: type, items: Sequence[Point | Finding | Summary]) -> None:
        if kind is Point:
            self._guard.run(self.part, self.sink.log, [item for item in items if isinstance(item, Point)])
        for item in items:
            if isinstance(item, Finding):
                self._guard.run(self.part, self.sink.alert, item)
            elif isinstance(item, Summary):
                self._guard.run(self.part, self.sink.summarize, item)


class MetricSinks:
    """All sinks of a run, as one destination of the live log's records."""

    part = "other loggers"

    def __init__(self, sinks: Sinks, guard: Guard) -> None:
        self._sinks = find_sinks((), sinks)
        self._guard = guard
        self._feeds: list[_Feed] = []
        self._prefix = ""
        self._peaks: dict[str, RunPeak] = {}

    def begin(self, folder: Path | None, rank: int) -> None:
        """Begin a run in a folder; one without a folder has sinks on rank 0 only."""
        if folder is None and rank:
            return
        run = RunInfo("tbmem" if folder is None else folder.name, folder, rank)
        self._feeds = [_Feed(sink, run, self._guard) for sink in self._sinks]
        self._prefix = f"rank{rank}/" if rank else ""
        self.join()

    def join(self) -> None:
        """Look for the program's own runs; in the training thread, since some tools keep them by thread."""
        for feed in self._feeds:
            feed.join()

    def write(self, records: Sequence[LogRecord]) -> None:
        """Queue the rows of samples, the findings that call for attention, and the end."""
        if not self._feeds:
            return
        items: list[Point | Finding | Summary] = []
        rows = [record for record in records if isinstance(record, SampleRow)]
        for row in rows:
            self._peaks.setdefault(row.sample.device, RunPeak()).add_row(row)
        for step, group in groupby(rows, lambda row: row.sample.step):
            items.append(self._point(step, [row.as_read for row in group]))
        findings = [record for record in records if isinstance(record, Finding)]
        for finding in findings:
            if finding.device in self._peaks:
                self._peaks[finding.device].add_finding(finding)
        items += [finding for finding in findings if _calls_for_attention(finding)]
        ends = [record for record in records if isinstance(record, Mapping) and record["type"] == "end"]
        items += [self._summary(end) for end in ends]
        for feed in self._feeds:
            feed.worker.put(items)

    def close(self) -> None:
        """Wait for the sinks, but not for ever; one that has not ended is left to itself."""
        for feed in self._feeds:
            feed.worker.end()
        ends = time.monotonic() + _JOIN_SECONDS
        for feed in self._feeds:
            if not feed.worker.join(ends - time.monotonic()):
                feed.give_up()

    def _point(self, step: int, samples: Sequence[MemorySample]) -> Point:
        several = len(self._peaks) > 1
        values = {tag: value for sample in samples for tag, value in scalar_values(sample, several=several)}
        return Point(step, samples[-1].time, self._tagged(values), samples)

    def _summary(self, end: Mapping[str, object]) -> Summary:
        verdicts = end.get("verdicts")
        found = [Finding.from_dict(verdict) for verdict in verdicts] if isinstance(verdicts, list) else []
        peaks = [peak for history in self._peaks.values() if (peak := history.peak) is not None]
        return Summary(self._tagged(summary_values(found, peaks)), found, peaks)

    def _tagged(self, values: Mapping[str, V]) -> dict[str, V]:
        return {f"{self._prefix}{tag}": value for tag, value in values.items()}
