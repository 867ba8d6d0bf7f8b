"""Findings that were told go in; the one that stands for a device when it neither leaks nor grows comes out."""

from __future__ import annotations

from collections.abc import Iterable

from tbmem.analysis.beat import fits
from tbmem.analysis.spikes import Jump
from tbmem.model.evidence import Channel
from tbmem.model.finding import Finding, FindingKind, Severity

_KEPT = 16


class History:
    """Remembers of what was told what a verdict needs: the worst, not the latest."""

    def __init__(self) -> None:
        self._spikes: list[Finding] = []
        self._latest: dict[FindingKind, Finding] = {}
        self._fullest: Finding | None = None
        self._beats: dict[Channel, tuple[int, int]] = {}

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

    def note_beat(self, channel: Channel, jump: Jump) -> bool:
        """Take in that something comes in a regular beat: spikes that belong to it are taken back.

        Returns:
            Whether no other channel has shown this beat before.
        """
        is_news = not any(fits(jump.first_step, member, period) for member, period in self._beats.values())
        self._beats[channel] = (jump.first_step, jump.period)
        self._spikes = [
            spike
            for spike in self._spikes
            if spike.first_step not in jump.members and not fits(spike.first_step, jump.first_step, jump.period)
        ]
        return is_news

    def expects(self, channel: Channel, step: int) -> bool:
        """Whether a spike of a channel that has no beat of its own belongs to the beat of another one."""
        if channel in self._beats:
            return False
        return any(fits(step, member, period) for member, period in self._beats.values())

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

    def calm(self) -> Finding | None:
        """The worst of what is better than growth: a change of level, a beat."""
        return self._latest.get(FindingKind.LEVEL_SHIFT) or self._latest.get(FindingKind.PERIODIC)


_RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}


def _height(spike: Finding) -> int:
    return int(spike.evidence["height_bytes"])
