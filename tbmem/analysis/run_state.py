"""Pieces of a live log go in as they are written; where the run stands comes out: RunState."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbmem.analysis.tracks import Track
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog

_KEPT_FINDINGS = 200
_ENOUGH_STEPS = 8
"""Steps below which a running run has no verdict."""
_QUIET = (FindingKind.SUSPECT, FindingKind.DISMISSED)
"""Kinds that are logged for the record and change no verdict."""


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
        """Over the whole run so far."""
        began, now = self.header.get("started"), self.last_time
        if not isinstance(began, (int, float)) or now is None or now <= began:
            return None
        return self.step / (now - began)

    def verdict(self, device: str) -> FindingKind:
        """The state of a device: what the run's end said, else what its findings come to so far."""
        for verdict in (self.end or {}).get("verdicts", ()):
            if verdict.get("device") == device:
                try:
                    return FindingKind(verdict["kind"])
                except (KeyError, ValueError):
                    break
        return self._verdict_so_far(device)

    def is_leaking(self, device: str) -> bool:
        """Whether a leak was found that was not taken back."""
        telling = (FindingKind.LEAK, FindingKind.GROWING)
        kinds = [each.kind for each in self.findings if each.device == device and each.kind in telling]
        return kinds[-1:] == [FindingKind.LEAK]

    def _verdict_so_far(self, device: str) -> FindingKind:
        kinds = [FindingKind.STABLE if self.step >= _ENOUGH_STEPS else FindingKind.WARMUP]
        for finding in self.findings:
            if finding.device not in (device, "") or finding.kind in _QUIET:
                continue
            if finding.kind is FindingKind.GROWING and FindingKind.LEAK in kinds:
                kinds.remove(FindingKind.LEAK)  # it was taken back
            elif finding.severity is not Severity.INFO and finding.kind not in kinds:
                kinds.append(finding.kind)
        order = (FindingKind.OOM, FindingKind.LEAK, FindingKind.SPIKE, FindingKind.NEAR_CAPACITY)
        return next((kind for kind in order if kind in kinds), kinds[-1])
