"""Comparison of two recordings or runs, and the outlier among several recordings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple, TypeVar

from tbmem.analysis.recordings.breakdown import OTHER
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis, Share
from tbmem.analysis.runs.run_status import RankState, spike_at, standing
from tbmem.analysis.statistics import outlier
from tbmem.model.category import Phase, word_of
from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import OPTIMIZER_STEPPED, STEP_ENDS
from tbmem.units import format_bytes, format_count, format_signed

_FACTOR_PERCENT = 1000.0  # growth in per cent from which it is given as a factor
_MATERIAL_FRACTION = 0.001  # fraction of the highest peak below which a change is ignored
_SHOWN = 3
"""Figures in the short form of a comparison."""
RUN_PEAK, RUN_LAST = OF_RUNS = "run_peak_bytes", "run_last_bytes"
_RESIDENT_PEAKS = (
    "On the CPU a run peak is the resident memory of the whole process, with its libraries and what malloc keeps of"
    " earlier steps; a recorded peak is what tensors needed in the recorded steps, and tells what changed there more"
    " exactly."
)
FIGURE_WORDS = {
    "peak_bytes": "recorded peak",
    "reserved_bytes": "reserved at the end of the recording",
    "allocated_bytes": "allocated at the end of the recording",
    "active_bytes": "active at the end of the recording",
    "requested_bytes": "requested at the end of the recording",
    "peak_reserved_bytes": "recorded peak of reserved memory",
    RUN_PEAK: "run peak",
    RUN_LAST: "level at the end of the run",
}
"""Names of a device's figures in texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure before and after, in bytes."""

    name: str
    before: int
    after: int
    stack: tuple[str, ...] = ()  # frames of a stack, innermost first; ``name`` is then its line

    @property
    def bytes(self) -> int:
        """Increase; negative for a decrease."""
        return self.after - self.before

    @property
    def percent(self) -> float | None:
        """Increase relative to ``before``; ``None`` if that is 0."""
        return 100 * self.bytes / self.before if self.before else None

    @property
    def growth(self) -> float:
        """``percent``, infinite for what is new."""
        percent = self.percent
        return percent if percent is not None else float("inf") if self.after else 0.0

    @property
    def percent_text(self) -> str:
        """``'+105.7 %'``, ``'new'``, or ``'× 262 144'`` for a very large growth."""
        if self.percent is None:
            return "new" if self.after else "0.0 %"
        if self.percent >= _FACTOR_PERCENT:
            return f"× {format_count(self.after / self.before)}"
        rounded = round(self.percent, 1)
        return f"{rounded:+.1f} %" if rounded else "0.0 %"

    @property
    def text(self) -> str:
        """``'+105.7 %, from 1.00 GiB to 2.06 GiB'``, ``'from 4 B to 1.00 MiB'``."""
        sizes = f"from {format_bytes(self.before)} to {format_bytes(self.after)}"
        return sizes if self.growth >= _FACTOR_PERCENT else f"{self.percent_text}, {sizes}"

    def to_dict(self) -> dict[str, Any]:
        """The change as plain JSON values."""
        stack = {"stack": self.stack} if self.stack else {}
        sizes = {"name": self.name, "before": self.before, "after": self.after}
        return {**sizes, **stack, "change": self.bytes, "percent": self.percent}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceComparison:
    """Changes on a device; the breakdowns are those of the peaks, sorted by the size of the change."""

    key: str
    name: str
    before_name: str  # name of the device before, which may differ
    totals: tuple[Change, ...]
    """``peak_bytes``, ``reserved_bytes``, ``allocated_bytes``, ... as far as both sides have them."""
    by_category: tuple[Change, ...] = ()
    by_module: tuple[Change, ...] = ()
    by_line: tuple[Change, ...] = ()
    by_stack: tuple[Change, ...] = ()
    """By whole stack, without stacks that the other side may have folded into its rest."""
    by_operator: tuple[Change, ...] = ()

    @property
    def peak(self) -> Change:
        """The peak's change."""
        return self.totals[0]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        changes = ("totals", "by_category", "by_module", "by_line", "by_stack", "by_operator")
        plain = {key: [change.to_dict() for change in getattr(self, key)] for key in changes}
        return {"name": self.name, "before_name": self.before_name, **plain}


class Figure(NamedTuple):
    """Change of one figure of a device."""

    device: str
    change: Change

    @property
    def words(self) -> str:
        """``'run peak'``."""
        return FIGURE_WORDS[self.change.name]


class RunFigures(NamedTuple):
    """Figures of a device from the live logs of a run in bytes, each the highest of its ranks."""

    run_peak_bytes: int | None
    run_last_bytes: int | None  # allocated at the end of the log


def run_figures(states: Sequence[RankState]) -> dict[str, RunFigures]:
    """Peak without what tbmem has added, and last level of each device, the highest of all ranks."""
    figures: dict[str, RunFigures] = {}
    for device in [device for state in states for device in state.devices]:
        values = (device.peak.of_the_program if device.peak is not None else None, device.last_level)
        columns = zip(values, figures.get(device.device, (None, None)), strict=True)
        known = ([value for value in column if value is not None] for column in columns)
        figures[device.device] = RunFigures(*(max(column, default=None) for column in known))
    return figures


def peak_notes(states: Iterable[RankState]) -> Sequence[str]:
    """Sentences where the peaks of ``run_figures`` are not those that a summary or a recording shows."""
    peaks = [device.peak for state in states for device in state.devices if device.peak is not None]
    has_own = any(peak.own for peak in peaks)
    is_resident = any(peak.counter == "host_peak_rss" for peak in peaks)
    return [
        *(["Run peaks are compared without what tbmem itself has added, as 'tbmem check' judges them."] * has_own),
        *([_RESIDENT_PEAKS] * is_resident),
    ]


def step_notes(names: tuple[str, str], runs: tuple[Iterable[RankState], Iterable[RankState]]) -> Sequence[str]:
    """A sentence where a step of one run ends at another moment than that of the other."""
    before, after = ({state.header.get(STEP_ENDS) for state in states} - {None} for states in runs)
    if not before or not after or before == after:
        return []
    ends = ["when its optimizer has stepped" if OPTIMIZER_STEPPED in side else "at step()" for side in (before, after)]
    return [
        f"A step of {names[0]} ends {ends[0]}, one of {names[1]} {ends[1]}: levels differ by what is freed in between,"
        " such as gradients."
    ]


def problem_notes(name: str, states: Iterable[RankState]) -> Sequence[str]:
    """Sentences about leaks of the run ``name``, and about its peaks that are those of spikes."""
    notes = []
    for state in states:
        for device in state.devices:
            leak = state.last(device.device, FindingKind.LEAK) if state.is_leaking(device.device) else None
            spike = spike_at(device.peak, standing(state.findings)) if device.peak is not None else None
            if leak is not None:
                notes.append(f"{name}: LEAK, {device.place}: {leak.message}.")
            if spike is not None:
                notes.append(f"{name}: the run peak of {device.place} is a spike's: {spike.message}.")
    return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Changes from one recording or run to another."""

    before: str  # short name
    after: str
    devices: tuple[DeviceComparison, ...]  # of the recordings
    runs: tuple[DeviceComparison, ...] = ()
    """Of the whole runs according to their live logs, ``run_peak_bytes`` first; without breakdowns."""
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every total that changed, of recordings and of runs, the largest change first."""
        figures: list[Figure] = []
        for group in (self.devices, self.runs):
            totals = [Figure(device.name, change) for device in group for change in device.totals]
            peaks = [size for _, change in totals if "peak" in change.name for size in (change.before, change.after)]
            highest = max(peaks, default=0)
            figures += [figure for figure in totals if is_material(figure.change, highest)]
        return tuple(sorted(figures, key=lambda figure: -abs(figure.change.growth)))

    @property
    def grown(self) -> tuple[Figure, ...]:
        """Figures that grew, which a limit applies to."""
        return tuple(figure for figure in self.figures if figure.change.bytes > 0)

    @property
    def grown_percent(self) -> float:
        """Largest growth of any total; where none grew, the largest change, which is negative."""
        figures = self.grown or self.figures
        return figures[0].change.growth if figures else 0.0

    def __repr__(self) -> str:
        figures = [f"  {figure.device}: {figure.words} {figure.change.text}" for figure in self.figures[:_SHOWN]]
        return "\n".join([f"Comparison of {self.before} with {self.after}", *(figures or ["  no figure changed"])])

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        grown = self.grown_percent
        return {
            "before": self.before,
            "after": self.after,
            "grown_percent": grown if grown != float("inf") else None,
            "figures": [{"device": device, **change.to_dict()} for device, change in self.figures],
            "devices": {device.key: device.to_dict() for device in self.devices},
            "runs": {device.key: device.to_dict() for device in self.runs},
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OddOne:
    """The outlier among several recordings."""

    name: str
    device: str
    figure: str  # ``'peak_bytes'`` or ``'reserved_bytes'``
    value: int
    median: int
    message: str


def compare_analyses(before: Analysis, after: Analysis) -> Comparison:
    """Changes of two recordings: of their devices of one name, of the main ones if no name is the same."""
    by_name = {device.name: device for device in before.devices}
    pairs = [(by_name[device.name], device) for device in after.devices if device.name in by_name]
    notes = []
    if {before.source, after.source} == {"snapshot", "trace"}:
        notes.append(
            f"{before.name} is a {before.source}, {after.name} a {after.source}: a snapshot counts bytes as asked for,"
            " a trace of a GPU counts them rounded."
        )
    if _is_known(before) != _is_known(after):
        notes.append("Only one of the two has an address book: their categories have different names.")
    pairs = pairs or [(before.main, after.main)]
    notes += [note for pair in pairs if (note := _other_phases(before.name, after.name, *pair))]
    devices = tuple(_compare_devices(*pair) for pair in pairs)
    return Comparison(before=before.name, after=after.name, devices=devices, notes=tuple(notes))


def _other_phases(before: str, after: str, old: DeviceAnalysis, new: DeviceAnalysis) -> str:
    """A note where the two peaks are of different phases, and their breakdowns therefore of different moments."""
    phases = [word_of(device.peak.phase) for device in (old, new)]
    if Phase.OTHER.name in (old.peak.phase, new.peak.phase) or phases[0] == phases[1]:
        return ""
    return (
        f"{new.name}: {before} has its peak in the {phases[0]}, {after} in the {phases[1]}: what they hold differs for"
        " that reason too."
    )


def _is_known(analysis: Analysis) -> bool:
    return any(share.basis == "known" for device in analysis.devices for share in device.by_category)


def _compare_devices(before: DeviceAnalysis, after: DeviceAnalysis) -> DeviceComparison:
    return DeviceComparison(
        key=after.key,
        name=after.name,
        before_name=before.name,
        totals=_totals(before, after, [name for name in FIGURE_WORDS if name not in RunFigures._fields]),
        by_category=changes(before.by_category, after.by_category),
        by_module=changes(before.by_module, after.by_module),
        by_line=changes(before.by_line, after.by_line),
        by_stack=_stack_changes(before.by_stack, after.by_stack),
        by_operator=changes(before.by_operator, after.by_operator),
    )


def compare_runs(before: Mapping[str, RunFigures], after: Mapping[str, RunFigures]) -> tuple[DeviceComparison, ...]:
    """Changes over whole runs, for each device that both have."""
    totals = {name: _totals(before[name], after[name], RunFigures._fields) for name in after if name in before}
    return tuple(DeviceComparison(key=name, name=name, before_name=name, totals=each) for name, each in totals.items())


_Side = TypeVar("_Side", DeviceAnalysis, RunFigures)


def _totals(before: _Side, after: _Side, names: Sequence[str]) -> tuple[Change, ...]:
    """Changes of figures that both sides have."""
    rows = [(name, _figure(before, name), _figure(after, name)) for name in names]
    known = [(name, old, new) for name, old, new in rows if old is not None and new is not None]
    return tuple(Change(name=name, before=old, after=new) for name, old, new in known)


def _figure(side: DeviceAnalysis | RunFigures, name: str) -> int | None:
    if isinstance(side, DeviceAnalysis) and name == "peak_bytes":
        return side.peak.bytes
    size: int | None = getattr(side, name)
    return size


def is_material(change: Change, peak: int) -> bool:
    """Whether a change in bytes is large enough to matter beside the peak of its device."""
    return change.bytes != 0 and abs(change.bytes) >= _MATERIAL_FRACTION * peak


def changes(before: Sequence[Share], after: Sequence[Share]) -> tuple[Change, ...]:
    """Change of each part, the largest first; parts that did not change are left out."""
    old, new = ({share.name: share.bytes for share in side} for side in (before, after))
    return _largest_first(Change(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**new, **old})


def _largest_first(parts: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted((part for part in parts if part.bytes), key=lambda part: (-abs(part.bytes), part.name)))


def _stack_changes(before: Sequence[Share], after: Sequence[Share]) -> tuple[Change, ...]:
    old, new = ({(share.name, share.stack): share.bytes for share in side} for side in (before, after))
    cut_old, cut_new = ((OTHER, ()) in side for side in (old, new))
    return _largest_first(
        Change(name=name, before=old.get((name, stack), 0), after=new.get((name, stack), 0), stack=stack)
        for name, stack in {**new, **old}
        if stack and ((name, stack) in old or not cut_old) and ((name, stack) in new or not cut_new)
    )


def odd_one(analyses: Sequence[Analysis]) -> OddOne | None:
    """The outlier of three or more recordings by peak or reserved memory, if there is one."""
    outliers = [odd for figure in ("peak_bytes", "reserved_bytes") if (odd := _odd(analyses, figure)) is not None]
    return max(outliers, key=lambda odd: abs(odd.value - odd.median) / max(odd.median, 1), default=None)


def _odd(analyses: Sequence[Analysis], figure: str) -> OddOne | None:
    values = [_figure(analysis.main, figure) for analysis in analyses]
    known = [value for value in values if value is not None]
    at = outlier(known)
    if at is None or len(known) < len(values):
        return None
    middle = median(known)
    distance = [abs(value - middle) for value in known]
    odd, typical = analyses[at], min((number for number in range(len(known)) if number != at), key=distance.__getitem__)
    difference = changes(analyses[typical].main.by_category, odd.main.by_category)
    why = f"; {difference[0].name} {format_signed(difference[0].bytes)}" if difference else ""
    message = (
        f"{odd.name} differs from the others: {figure.removesuffix('_bytes')} of {format_bytes(known[at])},"
        f" where the median is {format_bytes(middle)} ({format_signed(known[at] - middle)}){why}."
    )
    name, device = odd.name, odd.main.name
    return OddOne(name=name, device=device, figure=figure, value=known[at], median=int(middle), message=message)
