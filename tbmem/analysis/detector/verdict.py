"""Findings that were told go in; the one that stands for a device when it neither leaks nor grows comes out."""

from __future__ import annotations

from collections.abc import Iterable

from tbmem.analysis.detector.periodicity import belongs
from tbmem.analysis.detector.spike_test import Excursion
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity

_KEPT = 16


class VerdictHistory:
    """Remembers of what was told what a verdict needs: the worst, not the latest."""

    def __init__(self) -> None:
        self._spikes: list[Finding] = []
        self._latest: dict[FindingKind, Finding] = {}
        self._fullest: Finding | None = None
        self._periodic: dict[Channel, Excursion] = {}

    def add(self, finding: Finding) -> None:
        """Take in a finding that was told."""
        if finding.kind is FindingKind.SPIKE:
            ordered = sorted([*self._spikes, finding], key=_height, reverse=True)
            self._spikes = ordered[:_KEPT]
        elif finding.kind is FindingKind.NEAR_CAPACITY:
            if self._fullest is None or _RANK[finding.severity] >= _RANK[self._fullest.severity]:
                self._fullest = finding
        else:
            self._latest[finding.kind] = finding

    def has_spike(self, steps: Iterable[int]) -> bool:
        """Whether a spike was told of one of these steps."""
        wanted = set(steps)
        return any(wanted & set(range(spike.first_step, spike.last_step + 1)) for spike in self._spikes)

    def has_shift(self, step: int) -> bool:
        """Whether a change of level was told that began at this step."""
        latest = self._latest.get(FindingKind.LEVEL_SHIFT)
        return latest is not None and latest.first_step == step

    def note_period(self, channel: Channel, excursion: Excursion) -> bool:
        """Take in that something comes in a regular beat: spikes that belong to it are taken back.

        Returns:
            Whether no other channel has shown this beat before.
        """
        is_news = not self._is_periodic(excursion.first_step)
        self._periodic[channel] = excursion
        self._spikes = [
            spike for spike in self._spikes if not belongs(spike.first_step, excursion.members, excursion.period)
        ]
        return is_news

    def expects(self, channel: Channel, step: int) -> bool:
        """Whether a spike of a channel that has no beat of its own belongs to the beat of another one."""
        return channel not in self._periodic and self._is_periodic(step)

    def severe(self, *, fragmented: bool) -> Finding | None:
        """The worst of what is worse than growth: nearly full, spike, fragmentation.

        Args:
            fragmented: Whether memory is lost to fragmentation now.
        """
        if self._fullest is not None and self._fullest.severity is not Severity.INFO:
            return self._fullest
        if self._spikes:
            return self._spikes[0]
        return self._latest.get(FindingKind.FRAGMENTATION) if fragmented else None

    def shift(self) -> Finding | None:
        """The last change of level, unless it came with one of a beat: what libraries keep of a first one is none."""
        shift = self._latest.get(FindingKind.LEVEL_SHIFT)
        return None if shift is None or self._is_periodic(shift.first_step) else shift

    def periodicity(self) -> Finding | None:
        """The last beat that was told."""
        return self._latest.get(FindingKind.PERIODIC)

    def _is_periodic(self, step: int) -> bool:
        return any(belongs(step, periodicity.members, periodicity.period) for periodicity in self._periodic.values())


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def _height(spike: Finding) -> int:
    return int(spike.evidence["height_bytes"])
