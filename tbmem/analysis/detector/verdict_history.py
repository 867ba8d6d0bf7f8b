"""What a device's verdict needs of the findings that were reported: the worst, not the latest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tbmem.analysis.detector.periodicity import belongs
from tbmem.analysis.detector.spike_test import Excursion
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.units import format_signed

_ALIKE = 0.9  # part of the highest one's height from which on spikes are about as high
_KEPT = 0.25
"""Part of a spike's height up to which what stays of it is no level of its own: libraries of matrix products keep
buffers as large as the largest ones have needed."""
_CARRIED = 1.2  # times the height of a spike, which was held as its step ended, up to which the next step's is the same
_MOST = 0.8  # part of a growth that a change of level must make, for the growth to be none
_SPIKES = 16  # spikes that are remembered, the highest ones
_NAMED = 5  # steps with spikes that a verdict names


def worst_spike(spikes: Sequence[Finding]) -> Finding:
    """The one that needed most, where that was seen of all; else the one that is highest by what is known.

    Its message names the steps of the others.
    """
    worst = _largest(spikes)
    steps = sorted({spike.first_step for spike in spikes})
    if len(steps) == 1:
        return worst
    is_few = len(steps) <= _NAMED
    others = f"{len(steps)}: steps {', '.join(map(str, steps))}" if is_few else f"more than {_NAMED}"
    if not _are_measured(spikes):
        return replace(worst, message=f"{worst.message} · the highest of {others}")
    return replace(worst, message=f"{worst.message} · the largest of {others}{_needs(spikes) if is_few else ''}")


def _largest(spikes: Sequence[Finding]) -> Finding:
    if not _are_measured(spikes):
        return _highest(spikes)
    return max(spikes, key=lambda spike: spike.evidence["needed_bytes"])


def _are_measured(spikes: Sequence[Finding]) -> bool:
    """Whether looks have seen of all what they needed."""
    return all("needed_bytes" in spike.evidence for spike in spikes)


def _highest(spikes: Sequence[Finding]) -> Finding:
    """The one that reached highest above the usual, or was seen to need more than any other reached.

    Of those that are about as large it is the one with the highest peak, which is the run's.
    """
    largest = max(spikes, key=_size)
    alike = [
        spike
        for spike in spikes
        if spike.evidence.get("channel") == largest.evidence.get("channel") and _size(spike) >= _ALIKE * _size(largest)
    ]
    return max(alike, key=lambda spike: spike.evidence.get("peak_bytes", 0))


def comes_with(shift: Finding | None, first: int, last: int, growth: float) -> bool:
    """Whether most of a growth, in bytes between two steps, came with a change of level."""
    return shift is not None and first < shift.first_step <= last and _height(shift) >= _MOST * growth


def _needs(spikes: Sequence[Finding]) -> str:
    """What the step of each needed, by step."""
    known = {spike.first_step: spike.evidence["needed_bytes"] for spike in spikes}
    return f", which needed at least {', '.join(format_signed(known[step]) for step in sorted(known))} more than usual"


def _size(spike: Finding) -> int:
    return max(_height(spike), int(spike.evidence.get("needed_bytes", 0)))


def _height(spike: Finding) -> int:
    return int(spike.evidence.get("height_bytes", 0))


def _is_carried_into(excursion: Excursion, spike: Finding) -> bool:
    """Whether an excursion is little more than what a spike still held as its step ended, the one before."""
    is_held = spike.evidence.get("channel") == Channel.ALLOCATED.value
    return is_held and excursion.height <= _CARRIED * _height(spike)


def _is_severe(finding: Finding) -> bool:
    """Whether it counts for a verdict; a spike of an evaluation does not."""
    return finding.severity is not Severity.INFO


class VerdictHistory:
    """Remembers of the reported findings what a verdict needs: the worst, not the latest."""

    def __init__(self) -> None:
        self.latest: dict[FindingKind, Finding] = {}
        """The last finding of each kind that is neither spike nor near capacity."""
        self._spikes: list[Finding] = []
        self._fullest: Finding | None = None
        self._periodic: dict[Channel, Excursion] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding that was reported."""
        if finding.kind is FindingKind.SPIKE:
            ordered = sorted([*self._spikes, finding], key=lambda spike: (_is_severe(spike), _height(spike)))
            self._spikes = ordered[-_SPIKES:]
        elif finding.kind is FindingKind.NEAR_CAPACITY:
            order = list(Severity)
            if self._fullest is None or order.index(finding.severity) >= order.index(self._fullest.severity):
                self._fullest = finding
        else:
            self.latest[finding.kind] = finding

    @property
    def spikes(self) -> Sequence[Finding]:
        """The highest spikes that were reported and count for a verdict."""
        return [spike for spike in self._spikes if _is_severe(spike)]

    def explains(self, channel: Channel, excursion: Excursion) -> bool:
        """Whether a spike of its steps was reported, or one channel has a period that it fits and its own has none."""
        first = excursion.first_step
        is_reported = bool(self._spikes_in(first, excursion.last_step))
        is_carried = any(_is_carried_into(excursion, spike) for spike in self._spikes_in(first - 1, first - 1))
        return is_reported or is_carried or (channel not in self._periodic and self.is_periodic(first))

    def is_periodic(self, step: int) -> bool:
        """Whether a step belongs to a period that was reported."""
        return any(belongs(step, each.members, each.period) for each in self._periodic.values())

    def is_kept_of_a_spike(self, first_step: int, height: int) -> bool:
        """Whether a level that is so many bytes higher from a step on is what a spike of that step has left."""
        return any(height <= _KEPT * _height(spike) for spike in self._spikes_in(first_step, first_step))

    def with_largest(self, periodic: Finding) -> Finding:
        """A period's finding, which has the sizes of its last step; it names a spike of it that is clearly larger."""
        members, period = periodic.evidence["member_steps"], periodic.evidence["period_steps"]
        spikes = [*(spike for spike in self._spikes if belongs(spike.first_step, members, period)), periodic]
        largest, is_measured = _largest(spikes), _are_measured(spikes)
        key = "needed_bytes" if is_measured else "height_bytes"
        size = int(largest.evidence.get(key, 0))
        if periodic.evidence[key] >= _ALIKE * size:
            return periodic
        more = f"{format_signed(size)} more"
        told = f"needed at least {more} than usual" if is_measured else f"took {more} memory than usual"
        message = f"{periodic.message} · the largest was step {largest.first_step}, which {told}"
        return replace(periodic, message=message, evidence={**periodic.evidence, "largest_step": largest.first_step})

    def note_period(self, channel: Channel, periodic: Excursion) -> bool:
        """Retract spikes that belong to a period; returns whether no other channel has shown this period before."""
        is_news = not self.is_periodic(periodic.first_step)
        self._periodic[channel] = periodic
        members, period = periodic.members, periodic.period
        self._spikes = [spike for spike in self._spikes if not belongs(spike.first_step, members, period)]
        return is_news

    def severe(self, *, fragmented: bool) -> Finding | None:
        """The worst of what is worse than growth: nearly full, spike, fragmentation (if it stands now)."""
        if self._fullest is not None and _is_severe(self._fullest):
            return self._fullest
        if spikes := self.spikes:
            return worst_spike(spikes)
        return self.latest.get(FindingKind.FRAGMENTATION) if fragmented else None

    def noted(self) -> Finding | None:
        """What a stable run is said to have beside: the last period, else the highest evaluation."""
        return self.latest.get(FindingKind.PERIODIC) or (worst_spike(self._spikes) if self._spikes else None)

    def shift(self) -> Finding | None:
        """The last shift, unless it came with an excursion that is periodic, or of which it is a small part."""
        shift = self.latest.get(FindingKind.LEVEL_SHIFT)
        if shift is None or self.is_periodic(shift.first_step):
            return None
        return None if self.is_kept_of_a_spike(shift.first_step, _height(shift)) else shift

    def _spikes_in(self, first: int, last: int) -> Sequence[Finding]:
        return [spike for spike in self._spikes if spike.first_step <= last and first <= spike.last_step]
