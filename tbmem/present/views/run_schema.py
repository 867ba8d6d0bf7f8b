"""Types of the answers about runs; the routes are in the docstring of the package."""

from __future__ import annotations

from typing import Any, TypedDict

from tbmem.present.text.comparison_headline import Headline


class Empty(TypedDict):
    """Why there is nothing to draw, and how to get data."""

    title: str
    text: str
    """One or two sentences."""
    commands: list[str]
    """Lines to type, or to add to a training script."""


class FileItem(TypedDict):
    """One file of a run."""

    file: str
    """Relative to the run's folder."""
    name: str
    """Short, for people: ``rank0_window1``."""
    kind: str
    """``log``, ``trace``, ``snapshot``, ``timeline``, ``estimate``."""
    rank: int | None
    bytes: int
    changed: float
    error: str | None
    """Why it cannot be read; ``null`` if it can be, or was not read yet."""


class RunItem(TypedDict):
    """One run of the log folder."""

    run: str
    """Name as in TensorBoard: path relative to the log folder, ``.`` for the folder itself."""
    status: str
    """A value of ``analysis.run_status.Standing``."""
    status_text: str
    """Text of the status: ``ended by ValueError``."""
    changed: float
    version: str
    """Changes whenever a file of the run changes."""
    ranks: list[int]
    logs: list[FileItem]
    recordings: list[FileItem]
    estimates: list[FileItem]


class Index(TypedDict):
    """All runs, the most recently changed first."""

    tbmem: str
    source: str
    """``tensorboard`` or ``report``."""
    written: str | None
    """When a report was written, for people."""
    runs: list[RunItem]
    colours: dict[str, dict[str, str]]
    """``categories`` by name."""
    words: dict[str, str]
    """Categories and phases as people write them."""
    notes: list[str]
    empty: Empty | None


class FindingItem(TypedDict):
    """One finding and its position."""

    run: str
    kind: str
    label: str
    """The kind for people: ``NEAR CAPACITY``."""
    severity: str
    """``info``, ``warning``, ``critical``."""
    quiet: bool
    """A suspicion or its dismissal, not reported."""
    device: str
    rank: int
    first_step: int
    last_step: int
    x: float | None
    """Position of its last step, in the unit of ``Live.x``; ``null`` in other views."""
    message: str
    advice: str
    line: str
    """Source line that holds or makes the memory, ``train.py:41  losses.append(loss)``; empty where none is known."""
    known_by: str
    """Source of the evidence; may be empty."""
    evidence: dict[str, Any]


class Card(TypedDict):
    """The state of one device of one rank."""

    rank: int
    device: str
    name: str
    """For people: ``GPU 0``, ``CPU``."""
    verdict: str
    """Kind of finding: ``leak``, ``spike``, ``stable``, ``near_capacity``, ``oom``, ``warmup``, ``short_run``, ..."""
    label: str
    severity: str
    message: str
    """The sentence of the finding behind the verdict; may be empty."""
    line: str
    advice: str
    allocated: int | None
    reserved: int | None
    peak: int | None
    peak_word: str
    """Name of the peak: ``resident peak`` on the CPU."""
    peak_step: int | None
    capacity: int | None
    headroom: int | None
    """Capacity less peak."""
    growth_per_step: float | None
    levels: list[int]
    """After each step; at most 64, for a sparkline."""
    peaks: list[int]
    """Within each step; empty if not known."""


class OverviewRun(TypedDict):
    """One run."""

    run: str
    status: str
    """As in ``RunItem``, also ``status_text``."""
    status_text: str
    step: int
    steps_per_second: float | None
    seconds: float | None
    """Duration of the run so far."""
    age: float | None
    """Seconds since its last line."""
    host: str
    torch: str
    cards: list[Card]
    findings: list[FindingItem]
    """The last of each kind and device, without quiet ones, the most severe first."""
    next_steps: list[str]
    """In order of importance."""
    notes: list[str]
    """Limits of the logs."""
    errors: list[FileItem]
    """Files that cannot be read."""
    empty: Empty | None


class Overview(TypedDict):
    """Status and verdicts of runs."""

    runs: list[OverviewRun]
    left_out: int
    """Number of runs that are not listed, as they are not among the latest."""
    empty: Empty | None


class LiveSeries(TypedDict):
    """Columns of one device of one rank, all of one length; ``null`` where a value is missing."""

    run: str
    rank: int
    device: str
    name: str
    x: list[float]
    """Steps, or seconds since the run began."""
    step: list[int]
    allocated: list[int | None]
    """After the step."""
    lowest: list[int | None]
    """Lowest ``allocated`` of the steps that the point represents."""
    highest: list[int | None]
    reserved: list[int | None]
    peak: list[int | None]
    """Within the step; on the CPU of the resident memory."""
    peak_word: str
    """Name of the peak: ``resident peak`` on the CPU."""
    device_used: list[int | None]
    """By all processes."""
    host: list[int | None]
    workers: list[int | None]
    capacity: int | None
    points: int
    """Rows of the log in the range; more than listed if thinned, which keeps the extremes."""


class LiveWindow(TypedDict):
    """A window that the profiler recorded."""

    run: str
    rank: int
    number: int
    first_step: int
    last_step: int
    x0: float
    x1: float
    complete: bool
    files: list[str]
    """Its recordings, for the parameter ``file``."""


class LiveOom(TypedDict):
    """A step in which memory ran out."""

    run: str
    rank: int
    device: str
    step: int
    x: float
    message: str


class Live(TypedDict):
    """The step series."""

    x: str
    """``step`` or ``time``."""
    extent: list[float]
    """Whole range of x: two numbers; empty without points."""
    range: list[float]
    """The requested range, clipped to ``extent``."""
    series: list[LiveSeries]
    findings: list[FindingItem]
    windows: list[LiveWindow]
    ooms: list[LiveOom]
    running: bool
    """Whether one of the runs is still being written."""
    errors: list[FileItem]
    empty: Empty | None


class RankColumns(TypedDict):
    """One entry per rank and device, by rank."""

    rank: list[int]
    host: list[str]
    device: list[str]
    verdict: list[str]
    label: list[str]
    severity: list[str]
    step: list[int]
    allocated: list[int | None]
    reserved: list[int | None]
    peak: list[int | None]
    capacity: list[int | None]
    headroom: list[int | None]
    growth_per_step: list[float | None]
    levels: list[list[int]]
    peaks: list[list[int]]
    odd: list[bool]


class RankRecordings(TypedDict):
    """Peaks of the latest recording of each rank, by category."""

    rank: list[int]
    file: list[str]
    device: list[str]
    peak: list[int]
    categories: list[str]
    colours: list[str]
    bytes: list[list[int]]
    """By category, then by rank."""


class Ranks(TypedDict):
    """All ranks side by side."""

    run: str
    columns: RankColumns
    odd: str | None
    """Sentence about the outlier."""
    recordings: RankRecordings | None
    errors: list[FileItem]
    empty: Empty | None


class Changes(TypedDict):
    """What changed, the largest change first."""

    name: list[str]
    before: list[int]
    after: list[int]
    change: list[int]
    percent: list[float | None]
    """``null`` if new."""
    percent_text: list[str]
    """The same for people: ``+105.7 %``, ``new``, ``× 262 144``."""


class StackChanges(Changes):
    """Changes by call stack, each named after its line."""

    frames: list[list[str]]
    """The innermost first."""


class ComparedDevice(TypedDict):
    """One device."""

    device: str
    before_device: str
    name: str
    totals: Changes
    by_category: Changes
    by_module: Changes
    by_line: Changes
    by_stack: StackChanges
    """Without stacks that one side may have merged into its smallest."""
    by_operator: Changes


class Compare(TypedDict):
    """Two runs."""

    before: str
    after: str
    before_file: str | None
    """Recording that was compared; by default the one with the highest peak."""
    after_file: str | None
    grown_percent: float | None
    """The largest growth of any total; negative if none grew, ``null`` if new."""
    headline: Headline | None
    runs: list[ComparedDevice]
    """Whole runs from their logs: ``totals`` only."""
    recordings: list[ComparedDevice]
    notes: list[str]
    errors: list[FileItem]
    empty: Empty | None


class Curves(TypedDict):
    """Memory of several recordings over time, each from its own beginning."""

    axis: str
    """``time`` (x is milliseconds), or ``event`` where one of them has no times."""
    x: list[list[float]]
    """By recording."""
    bytes: list[list[int]]


class Sides(TypedDict):
    """Recordings side by side; all lists but those of categories have one entry for each."""

    run: list[str]
    file: list[str]
    name: list[str]
    device: list[str]
    """The main device, which the figures describe."""
    peak: list[int]
    reserved: list[int | None]
    efficiency_percent: list[float | None]
    suspects: list[int]
    """Number of suspected leaks."""
    link: list[str]
    """Relative address of its page; empty if its views are in this page."""
    odd: list[bool]
    message: str | None
    """Sentence about the outlier."""
    categories: list[str]
    """The largest first."""
    words: list[str]
    colours: list[str]
    bytes: list[list[int]]
    """At the peak, by category, then by recording."""
    others: list[int]
    """Sum of the categories that are not listed."""
    curves: Curves


class EstimateCurve(TypedDict):
    """A curve of allocated bytes; x is per cent of its length, so that two curves can be overlaid."""

    file: str
    device: str
    x: list[float]
    bytes: list[int]
    peak: int
    peak_x: float
    steps: list[float]
    """X at which its steps begin."""


class Estimated(TypedDict):
    """A prediction compared with a measurement."""

    run: str
    predicted: EstimateCurve | None
    measured: EstimateCurve | None
    error_percent: float | None
    """Relative error of the predicted peak."""
    categories: Changes | None
    """At the peak; ``before`` is predicted, ``after`` measured."""
    summary: dict[str, Any] | None
    """Output of ``tbmem estimate --json`` in the run's folder."""
    notes: list[str]
    errors: list[FileItem]
    empty: Empty | None
