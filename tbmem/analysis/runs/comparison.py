"""Compares two recordings or runs, and finds the odd one of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from tbmem.analysis.recordings.breakdown import OTHER
from tbmem.analysis.recordings.result import Analysis, DeviceAnalysis, Share
from tbmem.analysis.runs.run_report import RunState
from tbmem.analysis.statistics import outlier
from tbmem.units import format_bytes, format_count, format_signed

_FACTOR_FROM = 1000.0
"""Per cent from which a growth is told by its factor."""
_LEAST_SHARE = 0.001
"""Of the highest peak: a smaller change is none. A figure of some bytes may be anything the next time."""
_FIGURES = {
    "peak_bytes": "recorded peak",
    "reserved_bytes": "reserved at the end of the recording",
    "allocated_bytes": "allocated at the end of the recording",
    "active_bytes": "active at the end of the recording",
    "requested_bytes": "requested at the end of the recording",
    "peak_reserved_bytes": "recorded peak of reserved memory",
    "run_peak_bytes": "run peak",
    "run_last_bytes": "level at the end of the run",
}
"""Figures of a device, for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One figure before and after."""

    name: str
    before: int
    after: int
    stack: tuple[str, ...] = ()
    """Of a stack its frames, the innermost first; ``name`` is its line then."""

    @property
    def bytes(self) -> int:
        """How much more; negative for less."""
        return self.after - self.before

    @property
    def percent(self) -> float | None:
        """Of before; ``None`` if there was nothing."""
        return 100 * self.bytes / self.before if self.before else None

    @property
    def growth(self) -> float:
        """The same as a number that can be compared: endless for what is new."""
        percent = self.percent
        return percent if percent is not None else float("inf") if self.after else 0.0

    @property
    def percent_text(self) -> str:
        """``'+105.7 %'``, ``'new'``, or ``'× 262 144'`` where per cent would say nothing any more."""
        if self.percent is None:
            return "new" if self.after else "+0.0 %"
        factor = self.after / self.before
        # nothing is added to what rounds to nothing, so that it has no sign of its own
        return f"{round(self.percent, 1) + 0.0:+.1f} %" if self.percent < _FACTOR_FROM else f"× {format_count(factor)}"

    @property
    def text(self) -> str:
        """``'+105.7 %, from 1.00 GiB to 2.06 GiB'``, ``'from 4 B to 1.00 MiB'``."""
        sizes = f"from {format_bytes(self.before)} to {format_bytes(self.after)}"
        return sizes if self.growth >= _FACTOR_FROM else f"{self.percent_text}, {sizes}"

    def to_dict(self) -> dict[str, Any]:
        """The change as plain JSON values."""
        plain = {**asdict(self), "change": self.bytes, "percent": self.percent}
        return plain if self.stack else {key: value for key, value in plain.items() if key != "stack"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceComparison:
    """What changed on a device; breakdowns are of the peaks, the largest change first."""

    key: str
    name: str
    before_name: str
    """Name of the device before, where it was another one."""
    totals: tuple[Change, ...]
    """``peak_bytes``, ``reserved_bytes``, ``allocated_bytes``, ... as far as both sides know them."""
    by_category: tuple[Change, ...] = ()
    by_module: tuple[Change, ...] = ()
    by_line: tuple[Change, ...] = ()
    by_stack: tuple[Change, ...] = ()
    """Whole stacks; those are left out that only one side tells, if the other has put its smallest together."""
    by_operator: tuple[Change, ...] = ()

    @property
    def peak(self) -> Change:
        """The peak's change."""
        return self.totals[0]

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        changes = ("totals", "by_category", "by_module", "by_line", "by_stack", "by_operator")
        return {
            "name": self.name,
            "before_name": self.before_name,
            **{key: [change.to_dict() for change in getattr(self, key)] for key in changes},
        }


class Figure(NamedTuple):
    """One figure of a device, as a gate and a headline tell it."""

    device: str
    change: Change

    @property
    def words(self) -> str:
        """``'run peak'``."""
        return _FIGURES[self.change.name]


class RunFigures(NamedTuple):
    """What the live logs of a run say of a device, of its ranks the highest."""

    peak_bytes: int | None
    """Peak of the run."""
    last_bytes: int | None
    """Allocated at the end of the log."""


def run_figures(states: Sequence[RunState]) -> dict[str, RunFigures]:
    """Peak and last level of each device, of all ranks the highest."""
    found: dict[str, RunFigures] = {}
    for track in [track for state in states for track in state.tracks]:
        own = (track.peak.bytes if track.peak is not None else None, track.last_level)
        before = found.get(track.device, (None, None))
        found[track.device] = RunFigures(*map(_higher, before, own))
    return found


def _higher(one: int | None, other: int | None) -> int | None:
    return max((value for value in (one, other) if value is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed from one recording or run to another."""

    before: str
    """Short name."""
    after: str
    devices: tuple[DeviceComparison, ...]
    """Of the recordings."""
    runs: tuple[DeviceComparison, ...] = ()
    """Of the whole runs by their live logs, ``run_peak_bytes`` first; without breakdowns."""
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> tuple[Figure, ...]:
        """Every total that changed, of recordings and of runs, the largest change first."""
        found = [figure for group in (self.devices, self.runs) for figure in _telling(group)]
        return tuple(sorted(found, key=lambda figure: -abs(figure.change.growth)))

    @property
    def grown(self) -> tuple[Figure, ...]:
        """Those that grew: what a limit is held against."""
        return tuple(figure for figure in self.figures if figure.change.bytes > 0)

    @property
    def grown_percent(self) -> float:
        """The largest growth of any total; where none grew the largest change, which is less than 0."""
        found = self.grown or self.figures
        return found[0].change.growth if found else 0.0

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
    """A recording that differs from its siblings."""

    name: str
    device: str
    figure: str
    """``'peak_bytes'`` or ``'reserved_bytes'``."""
    value: int
    median: int
    message: str


def compare_analyses(before: Analysis, after: Analysis) -> Comparison:
    """What grew, device by device."""
    pairs = _pairs(before, after)
    notes = []
    if (before.source, after.source) in (("snapshot", "trace"), ("trace", "snapshot")):
        notes.append(
            f"{before.name} is a {before.source}, {after.name} a {after.source}: a snapshot counts bytes as asked for,"
            " a trace of a GPU counts them rounded."
        )
    if _is_known(before) != _is_known(after):
        notes.append("Only one of the two has an address book: their categories have different names.")
    return Comparison(
        before=before.name,
        after=after.name,
        devices=tuple(_compare_devices(one, other) for one, other in pairs),
        notes=tuple(notes),
    )


def _pairs(before: Analysis, after: Analysis) -> list[tuple[DeviceAnalysis, DeviceAnalysis]]:
    """Devices of one name; the main ones if no name is the same."""
    by_name = {device.name: device for device in before.devices}
    pairs = [(by_name[device.name], device) for device in after.devices if device.name in by_name]
    return pairs or [(before.main, after.main)]


def _is_known(analysis: Analysis) -> bool:
    return any(share.basis == "known" for device in analysis.devices for share in device.by_category)


def _compare_devices(before: DeviceAnalysis, after: DeviceAnalysis) -> DeviceComparison:
    figures = ("reserved_bytes", "allocated_bytes", "active_bytes", "requested_bytes", "peak_reserved_bytes")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in figures]
    totals = [Change(name="peak_bytes", before=before.peak.bytes, after=after.peak.bytes)]
    totals += [Change(name=name, before=old, after=new) for name, old, new in pairs if None not in (old, new)]
    return DeviceComparison(
        key=after.key,
        name=after.name,
        before_name=before.name,
        totals=tuple(totals),
        by_category=changes(before.by_category, after.by_category),
        by_module=changes(before.by_module, after.by_module),
        by_line=changes(before.by_line, after.by_line),
        by_stack=_stack_changes(before.by_stack, after.by_stack),
        by_operator=changes(before.by_operator, after.by_operator),
    )


def _telling(devices: Sequence[DeviceComparison]) -> list[Figure]:
    peaks = [change for device in devices for change in device.totals if "peak" in change.name]
    highest = max((max(peak.before, peak.after) for peak in peaks), default=0)
    pairs = [(device.name, change) for device in devices for change in device.totals]
    return [Figure(device, change) for device, change in pairs if is_material(change, highest)]


def is_material(change: Change, peak: int) -> bool:
    """Whether a change is one at all, beside the peak of its device."""
    return change.bytes != 0 and abs(change.bytes) >= _LEAST_SHARE * peak


def compare_runs(before: Mapping[str, RunFigures], after: Mapping[str, RunFigures]) -> tuple[DeviceComparison, ...]:
    """What changed over whole runs, for each device that both have."""
    return tuple(_compare_run(name, before[name], figures) for name, figures in after.items() if name in before)


def _compare_run(name: str, before: RunFigures, after: RunFigures) -> DeviceComparison:
    names = ("run_peak_bytes", "run_last_bytes")
    pairs = zip(names, before, after, strict=True)
    totals = [Change(name=key, before=old, after=new) for key, old, new in pairs if old is not None and new is not None]
    return DeviceComparison(key=name, name=name, before_name=name, totals=tuple(totals))


def changes(before: Sequence[Share], after: Sequence[Share]) -> tuple[Change, ...]:
    """Change of each part, the largest first; parts that did not change are left out."""
    old, new = _sizes(before), _sizes(after)
    found = [Change(name=name, before=old.get(name, 0), after=new.get(name, 0)) for name in {**new, **old}]
    return tuple(sorted((one for one in found if one.bytes), key=lambda one: (-abs(one.bytes), one.name)))


def _stack_changes(before: Sequence[Share], after: Sequence[Share]) -> tuple[Change, ...]:
    """Change of each stack that can be told, the largest first."""
    old, new = ({(one.name, one.stack): one.bytes for one in side} for side in (before, after))
    cut_old, cut_new = ((OTHER, ()) in side for side in (old, new))
    found = [
        Change(name=name, before=old.get((name, stack), 0), after=new.get((name, stack), 0), stack=stack)
        for name, stack in {**new, **old}
        if stack and ((name, stack) in old or not cut_old) and ((name, stack) in new or not cut_new)
    ]
    return tuple(sorted((one for one in found if one.bytes), key=lambda one: (-abs(one.bytes), one.name)))


def _sizes(shares: Sequence[Share]) -> Mapping[str, int]:
    return {share.name: share.bytes for share in shares}


def odd_one(analyses: Sequence[Analysis]) -> OddOne | None:
    """The recording whose peak or reserved memory lies farthest from the middle, if it stands out of three or more."""
    found = [odd for figure in ("peak_bytes", "reserved_bytes") if (odd := _odd(analyses, figure)) is not None]
    return max(found, key=lambda odd: abs(odd.value - odd.median) / max(odd.median, 1)) if found else None


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
    return OddOne(
        name=odd.name,
        device=odd.main.name,
        figure=figure,
        value=known[at],
        median=int(middle),
        message=(
            f"{odd.name} is the odd one: {figure.removesuffix('_bytes')} of {format_bytes(known[at])}, where the middle"
            f" is {format_bytes(middle)} ({format_signed(known[at] - middle)}){why}."
        ),
    )


def _figure(device: DeviceAnalysis, figure: str) -> int | None:
    return device.peak.bytes if figure == "peak_bytes" else device.reserved_bytes
