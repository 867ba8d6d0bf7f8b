"""What is asked of runs as a whole: the answers' declarations (see the package's text for the routes)."""

from __future__ import annotations

from typing import Any, TypedDict

from tbmem.present.text.comparison_headline import Headline


class Empty(TypedDict):
    """Why there is nothing to draw, and how to get data."""

    title: str
    text: str
    """One or two sentences."""
    commands: list[str]
    """What to type, or to write into a training, line by line; empty where there is nothing to type."""


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
    """Why it cannot be read, one line; ``null`` where it can, or was not tried yet."""


class RunItem(TypedDict):
    """One run of the log folder."""

    run: str
    """Its name, as TensorBoard has it: path relative to the log folder, ``.`` for that itself."""
    status: str
    """A value of ``analysis.run_status.Standing``."""
    status_text: str
    """The same for people: ``ended by ValueError``."""
    changed: float
    version: str
    """Another one whenever a file of the run has changed."""
    ranks: list[int]
    logs: list[FileItem]
    recordings: list[FileItem]
    estimates: list[FileItem]


class Index(TypedDict):
    """All runs, the one that changed last first."""

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
    """One finding, with where it stands."""

    run: str
    kind: str
    label: str
    """The kind for people: ``NEAR CAPACITY``."""
    severity: str
    """``info``, ``warning``, ``critical``."""
    quiet: bool
    """A suspicion or its dismissal: for the record only."""
    device: str
    rank: int
    first_step: int
    last_step: int
    x: float | None
    """Where its last step lies, in ``Live.x``'s unit; ``null`` in other views."""
    message: str
    advice: str
    line: str
    """Source line that holds or makes the memory, ``train.py:41  losses.append(loss)``; empty where none is known."""
    known_by: str
    """How it is known; may be empty."""
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
    """What the peak is called: ``resident peak`` on the CPU."""
    peak_step: int | None
    capacity: int | None
    headroom: int | None
    """Capacity less peak."""
    growth_per_step: float | None
    levels: list[int]
    """After the steps; at most 64, for a sparkline."""
    peaks: list[int]
    """Within the steps; empty where none is known."""


class OverviewRun(TypedDict):
    """One run."""

    run: str
    status: str
    """As in ``RunItem``, and so is the next."""
    status_text: str
    step: int
    steps_per_second: float | None
    seconds: float | None
    """How long it has run."""
    age: float | None
    """Seconds since its last line."""
    host: str
    torch: str
    cards: list[Card]
    findings: list[FindingItem]
    """Of each kind and device the last, without quiet ones, the most severe first."""
    next_steps: list[str]
    """What to do next, in order."""
    notes: list[str]
    """What is not known."""
    errors: list[FileItem]
    """Files that cannot be read."""
    empty: Empty | None


class Overview(TypedDict):
    """Verdicts."""

    runs: list[OverviewRun]
    left_out: int
    """Runs that were not asked for and are not among the latest."""
    empty: Empty | None


class LiveSeries(TypedDict):
    """Columns of one device of one rank; all lists have one length, of which the series' own may hold ``null``."""

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
    """Lowest ``allocated`` of the steps that the point stands for."""
    highest: list[int | None]
    reserved: list[int | None]
    peak: list[int | None]
    """Within the steps; of the CPU the resident memory's."""
    peak_word: str
    """What it is called: ``resident peak`` on the CPU."""
    device_used: list[int | None]
    """By all processes."""
    host: list[int | None]
    workers: list[int | None]
    capacity: int | None
    points: int
    """Rows of the log in the range; more than are listed where it was thinned (extremes are always kept)."""


class LiveWindow(TypedDict):
    """A stretch of steps that the profiler recorded."""

    run: str
    rank: int
    number: int
    first_step: int
    last_step: int
    x0: float
    x1: float
    complete: bool
    files: list[str]
    """Recordings of it, to be opened as ``file``."""


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
    """Whole range of x: two numbers, none without a point."""
    range: list[float]
    """What was asked for, cut to ``extent``."""
    series: list[LiveSeries]
    findings: list[FindingItem]
    windows: list[LiveWindow]
    ooms: list[LiveOom]
    running: bool
    """Whether one of the runs still writes."""
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
    """The sentence on the one that stands out."""
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
    """``null`` for what is new."""
    percent_text: list[str]
    """The same for people: ``+105.7 %``, ``new``, ``× 262 144``."""


class StackChanges(Changes):
    """The same of whole stacks, each under the name of its line."""

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
    """Without those that one side may have put together with its smallest."""
    by_operator: Changes


class Compare(TypedDict):
    """Two runs."""

    before: str
    after: str
    before_file: str | None
    """Recording that was compared: the one with the highest peak, unless another was asked for."""
    after_file: str | None
    grown_percent: float | None
    """The largest growth of any total; negative where none grew, ``null`` for what is new."""
    headline: Headline | None
    runs: list[ComparedDevice]
    """Of the whole runs, by their logs: ``totals`` only."""
    recordings: list[ComparedDevice]
    notes: list[str]
    errors: list[FileItem]
    empty: Empty | None


class Curves(TypedDict):
    """Memory of several recordings over time, each since its own beginning."""

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
    """The main one, of which the figures are."""
    peak: list[int]
    reserved: list[int | None]
    efficiency_percent: list[float | None]
    suspects: list[int]
    """What piles up step by step."""
    link: list[str]
    """Address of its own page, relative; empty where its views are in this one."""
    odd: list[bool]
    message: str | None
    """The sentence on the one that stands out."""
    categories: list[str]
    """The largest first."""
    words: list[str]
    colours: list[str]
    bytes: list[list[int]]
    """At the peak, by category, then by recording."""
    others: list[int]
    """Categories that are not listed, together."""
    curves: Curves


class EstimateCurve(TypedDict):
    """A curve of allocated bytes; x is the share of its length, 0 to 100, so that two can lie over each other."""

    file: str
    device: str
    x: list[float]
    bytes: list[int]
    peak: int
    peak_x: float
    steps: list[float]
    """Where its steps begin."""


class Estimated(TypedDict):
    """A prediction over what was measured."""

    run: str
    predicted: EstimateCurve | None
    measured: EstimateCurve | None
    error_percent: float | None
    """Predicted peak over the measured one, less 100 %."""
    categories: Changes | None
    """At the peak; ``before`` is predicted, ``after`` measured."""
    summary: dict[str, Any] | None
    """What ``tbmem estimate --json`` wrote, where it lies in the run's folder."""
    notes: list[str]
    errors: list[FileItem]
    empty: Empty | None
