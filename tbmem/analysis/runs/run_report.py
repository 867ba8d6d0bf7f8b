"""Pieces of a live log go in as they are written; where the run stands comes out: RunState."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbmem.analysis.detector.periodicity import belongs
from tbmem.analysis.growth_rate import ENOUGH_STEPS
from tbmem.analysis.runs.device_history import Track
from tbmem.config.schema import PatternsConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog

_KEPT_FINDINGS = 200


def standing(findings: Sequence[Finding]) -> list[Finding]:
    """Findings that hold: a leak as it was told last, no spike that has turned out to belong to a regular beat."""
    beats = [one for one in findings if one.kind is FindingKind.PERIODIC]
    last = {_leak(one): one for one in findings if one.kind is FindingKind.LEAK}
    return [
        one
        for one in findings
        if last.get(_leak(one), one) is one and not any(_is_taken_back(one, beat) for beat in beats)
    ]


def _leak(one: Finding) -> tuple[object, ...]:
    """What tells a leak from others; it is told anew when more is known of it."""
    return one.kind, one.rank, one.device, one.evidence.get("channel"), one.evidence.get("holder")


def _is_taken_back(one: Finding, beat: Finding) -> bool:
    if one.kind is not FindingKind.SPIKE or (one.rank, one.device) != (beat.rank, beat.device):
        return False
    members, period = beat.evidence.get("member_steps"), beat.evidence.get("period_steps")
    return isinstance(members, list) and isinstance(period, int) and belongs(one.first_step, members, period)


class RunState:
    """One rank of a run: its devices, its findings, whether it has ended."""

    def __init__(self) -> None:
        self.header: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self.signal: dict[str, Any] | None = None
        self.is_alive: bool | None = None
        """Whether its process is there; set by who can look at processes, ``None`` where that cannot be known."""
        self.has_begun = False
        """Whether anything but the header has been logged."""
        self.findings: list[Finding] = []
        self._tracks: dict[str, Track] = {}

    def add(self, piece: MonitorLog) -> None:
        """Take in what was read; with a header the run begins anew."""
        for header in piece.headers:
            self.header, self.findings, self._tracks = header, [], {}
            self.end = self.signal = self.is_alive = None
            self.has_begun = False
        for row in piece.rows:
            sample = row.sample
            if sample.device not in self._tracks:
                if sample.device != "cpu":
                    self._tracks.pop("cpu", None)  # it stood in until the accelerator was found
                self._tracks[sample.device] = Track(sample.device, sample.rank)
            self._tracks[sample.device].add(row)
        self.findings = (self.findings + piece.findings)[-_KEPT_FINDINGS:]
        self.has_begun = self.has_begun or bool(piece.rows or piece.findings or piece.windows)
        self.end = piece.end or self.end
        self.signal = piece.signal or self.signal

    @property
    def has_ended(self) -> bool:
        """Whether nothing will be written any more, as far as is known."""
        return self.end is not None or self.signal is not None or self.is_alive is False

    @property
    def tracks(self) -> Sequence[Track]:
        """Its devices."""
        return list(self._tracks.values())

    @property
    def rank(self) -> int:
        """Global rank."""
        return int(self.header.get("rank", 0))

    @property
    def step(self) -> int:
        """Steps so far."""
        return max((track.last.step for track in self.tracks if track.last is not None), default=0)

    @property
    def last_time(self) -> float | None:
        """Unix time of the last row, in seconds."""
        return max((track.last.time for track in self.tracks if track.last is not None), default=None)

    def steps_per_second(self) -> float | None:
        """Of steps without a profiler, as in a forecast; ``None`` where no duration is known."""
        seconds = next((track.step_seconds for track in self.tracks if track.step_seconds is not None), None)
        return None if seconds is None else 1 / seconds

    def verdict(self, device: str) -> FindingKind:
        """The state of a device: what the run's end said, else what its findings come to so far."""
        said = self._said_at_end(device)
        return self._verdict_so_far(device) if said is None else said.kind

    def told(self, device: str) -> Finding | None:
        """The finding behind the verdict of a device: what the run's end said, else the last of its kind."""
        return self._said_at_end(device) or self._last(device, self._verdict_so_far(device))

    def growth_per_step(self, track: Track) -> float | None:
        """Growth rate of a device in bytes per step: that of its leak or growth, as told, else that of its floor."""
        telling = [self.told(track.device)]
        if self.is_leaking(track.device):
            telling.append(self._last(track.device, FindingKind.LEAK))
        rates = [finding.evidence.get("bytes_per_step") for finding in telling if finding is not None]
        return next((float(rate) for rate in rates if isinstance(rate, (int, float))), track.growth_per_step())

    def _last(self, device: str, kind: FindingKind) -> Finding | None:
        return next((one for one in reversed(self.findings) if one.device == device and one.kind is kind), None)

    def _said_at_end(self, device: str) -> Finding | None:
        for verdict in (self.end or {}).get("verdicts", ()):
            try:
                found = Finding.from_dict(verdict)
            except (KeyError, ValueError, TypeError):
                continue
            if found.device == device:
                return found
        return None

    def is_leaking(self, device: str) -> bool:
        """Whether a leak was found that was not taken back."""
        telling = (FindingKind.LEAK, FindingKind.GROWING)
        kinds = [each.kind for each in self.findings if each.device == device and each.kind in telling]
        return kinds[-1:] == [FindingKind.LEAK]

    def _judged(self, device: str) -> int:
        """Steps that a verdict on a device counts: neither the first ones nor, on the CPU, those under a profiler."""
        patterns = (self.header.get("config") or {}).get("patterns") or {}
        warmup = patterns.get("warmup_steps", PatternsConfig().warmup_steps)
        track = self._tracks.get(device)
        return 0 if track is None else track.judged - int(warmup)

    def _verdict_so_far(self, device: str) -> FindingKind:
        kinds = [FindingKind.STABLE if self._judged(device) >= ENOUGH_STEPS else FindingKind.WARMUP]
        for finding in standing(self.findings):
            if finding.device not in (device, "") or finding.kind.is_quiet:
                continue
            if finding.kind is FindingKind.GROWING and FindingKind.LEAK in kinds:
                kinds.remove(FindingKind.LEAK)  # it was taken back
            elif finding.severity is not Severity.INFO and finding.kind not in kinds:
                kinds.append(finding.kind)
        order = (FindingKind.OOM, FindingKind.LEAK, FindingKind.SPIKE, FindingKind.NEAR_CAPACITY)
        return next((kind for kind in order if kind in kinds), kinds[-1])
