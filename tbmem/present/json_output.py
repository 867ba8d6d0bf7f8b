"""What ``--json`` prints, as a type for each command; the documentation's JSON schemas are made from them.

Records that are printed as they are stand here as themselves; a record that gains or loses keys on its way is a
``changed`` one, and what a command puts together is a ``TypedDict``. Sizes are bytes, times seconds.
"""

from __future__ import annotations

from typing import Any, TypedDict, get_type_hints

from tbmem.analysis.allocator.what_if import WhatIf
from tbmem.analysis.estimates.fit import Estimate, Formula
from tbmem.analysis.recordings.result import DeviceAnalysis, Share
from tbmem.analysis.runs.checks import Result
from tbmem.analysis.runs.comparison import OddOne
from tbmem.analysis.runs.run_status import Standing
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import WindowRecord
from tbmem.model.rehearsal import DevicePeak, Largest, ProcessResult, Rehearsal
from tbmem.model.run_summary import Peak, ProfilerCost
from tbmem.model.sweep import Sweep


def changed(record: type[Any], name: str, without: tuple[str, ...] = (), **keys: Any) -> Any:
    """The type of a record with other keys.

    Args:
        record: A dataclass.
        name: Name of the type.
        without: Fields that are left out.
        **keys: Types of the keys that are added, or that replace those of fields.
    """
    hints = {key: hint for key, hint in get_type_hints(record).items() if key not in without}
    made = TypedDict(name, {**hints, **keys})  # type: ignore[misc]
    made.__doc__ = record.__doc__
    made.__record__ = record  # type: ignore[attr-defined]
    return made


class Status(TypedDict):
    """Whether a run, or one rank of it, still runs, and how it ended."""

    status: Standing
    status_text: str
    """The same for people: ``'ended by ValueError'``."""
    ended_by: str | None
    """An exception or a signal."""


# tbmem analyze, tbmem report

_Device = changed(
    DeviceAnalysis,
    "Device",
    without=("number", "key"),
    peak_bytes=int,
    peak_event_index=int,
    categories=list[Share],
    **dict.fromkeys(("by_category", "by_phase", "by_module", "by_line", "by_operator", "inferred"), dict[str, int]),
    by_category_max=dict[str, int | None],
)


class AnalysisOutput(TypedDict):
    """Analysis of one recording."""

    name: str
    path: str
    source: str
    """What made the file: a profiler's trace, a snapshot, ..."""
    devices: dict[str, _Device]  # type: ignore[valid-type]
    """By torch's index, ``'0'``, or by the name of a device without one, ``'cpu'``."""
    notes: list[str]
    """What is not known, one sentence each."""


class AnalysesOutput(TypedDict):
    """Analyses of several recordings."""

    recordings: dict[str, AnalysisOutput]
    odd_one: OddOne | None


class WhatIfOutput(TypedDict):
    """A recording, replayed under other settings of the allocator (``--what-if``)."""

    name: str
    devices: list[WhatIf]


class SeriesOutput(TypedDict):
    """Memory of one device of one rank over the run."""

    rank: int
    device: str
    rows: int
    highest_bytes: int | None
    allocated_bytes: int | None
    """At the end, as those below."""
    reserved_bytes: int | None
    host_bytes: int | None
    """Resident memory of the process."""
    workers_bytes: int | None
    """Of child processes."""
    capacity_bytes: int | None


_PeakOfRun = changed(Peak, "PeakOfRun", headroom=int | None)
_Window = changed(WindowRecord, "Window", type=str, rank=int)


class ReportOutput(Status):
    """Report of a run."""

    name: str
    path: str
    steps: int
    """Last step that was logged and has ended."""
    seconds: float
    """From the start to the last line."""
    ranks: list[int]
    series: list[SeriesOutput]
    peaks: list[_PeakOfRun]  # type: ignore[valid-type]
    verdicts: list[Finding]
    """One for each device of each rank: that of the run's end, else what its findings amount to."""
    findings: list[Finding]
    windows: list[_Window]  # type: ignore[valid-type]
    notes: list[str]
    """Gaps in the logs, one sentence each."""


class PageOutput(TypedDict):
    """A page that was written (``--html``)."""

    html: str
    bytes: int


# tbmem check


class CheckOutput(Status):
    """Results of the checks of a run."""

    run: str
    holds: bool
    """Whether all checks hold."""
    checks: list[Result]
    notes: list[str]


# tbmem compare


class _ChangeParts(TypedDict, total=False):
    stack: list[str]
    """Frames of a stack, the innermost first; ``name`` is then its line."""


class ChangeOutput(_ChangeParts):
    """One figure before and after, in bytes."""

    name: str
    before: int
    after: int
    change: int
    percent: float | None
    """``null`` for what is new."""


class FigureOutput(ChangeOutput):
    """One changed figure of a device, in bytes."""

    device: str


class DeviceChanges(TypedDict):
    """Changes on a device; the breakdowns are those of the peaks."""

    name: str
    before_name: str
    totals: list[ChangeOutput]
    by_category: list[ChangeOutput]
    by_module: list[ChangeOutput]
    by_line: list[ChangeOutput]
    by_stack: list[ChangeOutput]
    by_operator: list[ChangeOutput]


class CompareOutput(TypedDict):
    """Changes from one recording or run to another."""

    before: str
    after: str
    grown_percent: float | None
    """Largest growth of any total; ``null`` for what is new."""
    figures: list[FigureOutput]
    """Every total that changed, the largest change first."""
    devices: dict[str, DeviceChanges]
    """Of the recordings."""
    runs: dict[str, DeviceChanges]
    """Of the whole runs, according to their live logs."""
    notes: list[str]
    fail_if_grown_percent: float | None
    failed: bool


# tbmem config


class SettingOutput(TypedDict):
    """One value of the configuration; its key is the full one, ``profiling.active``."""

    value: bool | int | float | str | list[float] | None
    origin: str
    """``'default'``, a file, an override as typed, or a variable's name."""


# tbmem demo

_ProfilerCost = changed(ProfilerCost, "CostOfProfiler", slowdown=float | None)


class SummaryPeak(TypedDict):
    """Peak of a device."""

    text: str
    """The bytes for people: ``'1.20 GiB'``."""
    bytes: int
    step: int
    counter: str
    total: int | None
    """Capacity of the device."""
    headroom: int | None
    own: int
    """Bytes of it that tbmem itself has added to a resident memory."""
    recorded: int | None
    """Bytes of a higher step of the CPU that the profiler recorded, with its records."""
    recorded_step: int | None
    ended: bool
    """Whether its step has, and not the run in it."""


class SummaryOutput(Status):
    """Summary of a run at its end."""

    run: str
    """Folder of the run."""
    logdir: str
    rank: int
    steps: int
    seconds: float
    verdicts: dict[str, FindingKind]
    """By device, as ``peak``."""
    peak: dict[str, SummaryPeak]
    findings: list[Finding]
    traces: list[str]
    snapshots: list[str]
    address_books: list[str]
    monitor_log: str | None
    windows_deleted: int
    """Windows whose files were deleted again (``profiling.keep``)."""
    problems: list[str]
    """Parts that were switched off, files that were not written or are gone, and why."""
    exception: str | None
    profiler: _ProfilerCost | None  # type: ignore[valid-type]


# tbmem estimate, rehearse, sweep

_Estimate = changed(
    Estimate, "EstimateOutput", formula=changed(Formula, "FormulaOutput", total=int), files=tuple[str, ...]
)
_DevicePeak = changed(DevicePeak, "DevicePeakOutput", headroom=int)
_Process = changed(ProcessResult, "Process", devices=list[_DevicePeak])  # type: ignore[valid-type]
_Rehearsal = changed(
    Rehearsal,
    "RehearsalOutput",
    processes=list[_Process],  # type: ignore[valid-type]
    fits=bool,
    headroom=int,
    worst_rank=int,
    peak_allocated=int,
    peak_reserved=int,
)
_Largest = changed(Largest, "LargestOutput", result=_Rehearsal | None)


# tbmem watch


class WatchedDevice(TypedDict):
    """Memory of a device; ``null`` where it is not known."""

    device: str
    verdict: FindingKind
    allocated: int | None
    allocated_step: int | None
    """Step after which it was read, if an earlier one than the last."""
    reserved: int | None
    peak: int | None
    peak_step: int | None
    peak_counter: str | None
    peak_own: int | None
    peak_ended: bool | None
    """Whether its step has, and not the run in it."""
    total: int | None
    headroom: int | None
    growth_per_step: float | None
    levels: list[int]
    """After the steps, at most 64."""
    peaks: list[int]
    """Within the steps, at most 64."""


class WatchedRank(Status):
    """One rank of a run."""

    rank: int
    host: str | None
    skipped_records: int
    """Records of its log that are damaged and were left out."""
    devices: list[WatchedDevice]


class WatchOutput(Status):
    """A run, running or finished."""

    run: str
    step: int
    steps_per_second: float | None
    seconds_since_last_row: float | None
    errors: list[str]
    """Of logs that could not be read."""
    ranks: list[WatchedRank]
    findings: list[Finding]
    notes: list[str]
    """Times in which a log could not be written, as sentences."""


OUTPUTS: dict[str, tuple[Any, ...]] = {
    "analyze": (AnalysisOutput, AnalysesOutput, list[WhatIfOutput]),
    "check": (CheckOutput,),
    "compare": (CompareOutput,),
    "config": (dict[str, SettingOutput],),
    "demo": (SummaryOutput, None),
    "estimate": (_Estimate,),
    "rehearse": (_Rehearsal, _Largest),
    "report": (ReportOutput, PageOutput, AnalysisOutput, AnalysesOutput),
    "sweep": (Sweep,),
    "watch": (list[WatchOutput],),
}
"""The output of each command that has ``--json``; of several types it is one, by its options and input."""
