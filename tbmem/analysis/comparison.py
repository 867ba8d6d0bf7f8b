"""Analyses go in; what grew between two, and which of many is the odd one, comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, NamedTuple

from tbmem.analysis.breakdown import OTHER
from tbmem.analysis.outlier import outlier
from tbmem.analysis.report import Analysis, DeviceAnalysis, Share
from tbmem.units import format_bytes, format_signed


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

    def to_dict(self) -> dict[str, Any]:
        """The change as plain JSON values."""
        found = {**asdict(self), "change": self.bytes, "percent": self.percent}
        return found if self.stack else {key: value for key, value in found.items() if key != "stack"}


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


class RunFigures(NamedTuple):
    """What the live log of a run says of a device."""

    device: str
    peak_bytes: int
    """Highest level of the steps that were not profiled (of all, if all were); of the CPU the resident memory."""
    last_bytes: int | None
    """Allocated at the end of the log."""


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
    def grown_percent(self) -> float:
        """By how much the peak grew on the device on which it grew most; less than 0 if it shrank on all.

        That is the recordings' peak; that of the runs where there are no recordings.
        """
        return max((_grown(device.peak) for device in self.devices or self.runs), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """The comparison as plain JSON values."""
        grown = self.grown_percent
        return {
            "before": self.before,
            "after": self.after,
            "grown_percent": grown if grown != float("inf") else None,
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


def compare_runs(before: Mapping[str, RunFigures], after: Mapping[str, RunFigures]) -> tuple[DeviceComparison, ...]:
    """What changed over whole runs, for each device that both have."""
    return tuple(_compare_run(name, before[name], figures) for name, figures in after.items() if name in before)


def _compare_run(name: str, before: RunFigures, after: RunFigures) -> DeviceComparison:
    totals = [Change(name="run_peak_bytes", before=before.peak_bytes, after=after.peak_bytes)]
    if before.last_bytes is not None and after.last_bytes is not None:
        totals.append(Change(name="run_last_bytes", before=before.last_bytes, after=after.last_bytes))
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


def _grown(change: Change) -> float:
    if change.percent is None:
        return float("inf") if change.after else 0.0
    return change.percent


def odd_one(analyses: Sequence[Analysis]) -> OddOne | None:
    """The recording whose peak or reserved memory lies farthest from the middle, if it stands out.

    Args:
        analyses: Ranks or iterations of one run; fewer than three have no odd one.
    """
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
