"""Investigator of suspicions: watches the next few steps, draws conclusions and writes what was seen."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from tbmem.analysis.detector.detector import Detector
from tbmem.analysis.diagnosis.leak_cause import explain
from tbmem.config.schema import EvidenceConfig
from tbmem.model.evidence import Channel, Conclusion, Evidence, Outcome, Suspicion
from tbmem.model.files import complete_or_nothing
from tbmem.model.finding import Finding
from tbmem.runtime.process.guard import WRITING, Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.program.ownership import stack_of

if TYPE_CHECKING:  # loaded by prepare()
    from tbmem.runtime.evidence.session import EvidenceSession, Instruments
    from tbmem.sources.survivors.base import Births

PART = "evidence"
"""Name of this part in the log and in the summary's problems."""
_WORTH_A_LOOK = 0.5
"""Share of ``evidence.min_leak`` from which on growth is looked into: a rate is an estimate, and what is well below the
smallest leak (Python's own caches, a logger's) would cost seconds of looking to be dismissed."""
_IN_PROCESS = (Channel.ALLOCATED, Channel.PEAK, Channel.RESERVED, Channel.HOST)
"""Channels whose growth this process can explain; child processes are not ours to look into."""

Suspect = tuple[str, Channel]
"""A device and the channel that grows there."""


class Investigator:
    """Looks into suspicions, one after the other, within the budget of a run.

    Args:
        config: How much may be spent.
        folder: Where the files of what was seen go; ``None`` writes none.
        guard: Where errors go.
        is_free: Whether no profiler window comes up in the next so many steps.
        room: Bytes that are still free on a device, where that is known.
        instruments: What is looked with; a test gives its own.
    """

    def __init__(
        self,
        config: EvidenceConfig,
        folder: RunFolder | None,
        guard: Guard,
        is_free: Callable[[int], bool] = lambda steps: True,
        room: Callable[[str], int | None] = lambda device: None,
        instruments: Instruments | None = None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._guard = guard
        self._is_free = is_free
        self._room = room
        self._instruments = instruments
        self._session: EvidenceSession | None = None
        self._snapshot: Path | None = None
        self._windows = 0
        self.resumed_after = 0
        """Steps before this run, in a training that goes on."""
        self._conclusions: dict[Suspect, Conclusion] = {}
        self._inconclusive: Counter[Suspect] = Counter()
        self._suspected: dict[Suspect, int] = {}

    @property
    def is_watching(self) -> bool:
        """Whether a session is open: the host's figures are not the training's alone."""
        return self._session is not None

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do at each step."""
        return self._session is not None or bool(self._conclusions)

    def prepare(self) -> None:
        """Load what a session needs: when the training has begun, so that no start waits for it, and no later.

        Loaded in the middle of a training it would itself be growth.
        """
        if self._instruments is None:
            from tbmem.runtime.evidence.session import Instruments

            self._instruments = Instruments()

    def step(self, step: int, detectors: Mapping[str, Detector], frame: FrameType | None) -> list[Finding]:
        """A step has ended and was judged.

        Returns:
            What the detectors make of new conclusions.
        """
        if not self._guard.is_on(PART):
            return []
        try:
            return self._step(step, detectors, frame)
        except Exception as error:
            self.close()
            self._guard.fail(PART, error)
            return []

    def close(self) -> None:
        """Switch off what is on."""
        session, self._session = self._session, None
        if session is not None:
            self._guard.run("evidence (switching off)", session.abandon)

    def _step(self, step: int, detectors: Mapping[str, Detector], frame: FrameType | None) -> list[Finding]:
        current = _current_suspicions(detectors)
        if self._session is not None:
            evidence = self._session.advance(step, frame)
            if evidence is None:
                return []
            self._session = None
            self._conclude(evidence, current, detectors)
        findings = self._hand_over(step, current, detectors)
        new = [
            suspicion
            for suspect, suspicion in _current_suspicions(detectors).items()
            if suspect not in self._conclusions
            and suspicion.bytes_per_step >= _WORTH_A_LOOK * self._config.min_leak_bytes
        ]
        if new and self._windows < self._config.max_windows:
            self._begin(step, new[0], frame)
        return findings

    def _begin(self, step: int, suspicion: Suspicion, frame: FrameType | None) -> None:
        self.prepare()
        assert self._instruments is not None
        self._windows += 1
        self._suspected[suspicion.device, suspicion.channel] = step
        length = self._config.steps + suspicion.gap + 1
        may_follow = self._config.births and self._is_free(length)
        self._snapshot = None
        self._session = self._instruments.session(suspicion, self._config, self._capture, births=may_follow)
        self._session.begin(step, frame)

    def _conclude(
        self, evidence: Evidence, current: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> None:
        for suspect, suspicion in current.items():
            self._suspected.setdefault(suspect, evidence.first_step)
            conclusion = explain(
                suspicion,
                evidence,
                min_rate=self._config.min_leak_bytes,
                room=self._room(suspicion.device),
                looked_before=self._inconclusive[suspect],
            )
            self._inconclusive[suspect] += conclusion.outcome is Outcome.OPEN
            path = self._guard.run(WRITING, self._write, suspicion, evidence, conclusion)
            files = [file.name for file in (path, self._snapshot) if file is not None]
            if files:
                conclusion = replace(conclusion, evidence={**conclusion.evidence, "files": files})
            self._conclusions[suspect] = conclusion

    def _hand_over(
        self, step: int, current: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> list[Finding]:
        """Give the detectors their conclusions; a leak waits until the growth is old enough to be no epoch."""
        findings: list[Finding] = []
        for suspect, conclusion in list(self._conclusions.items()):
            suspicion = current.get(suspect)
            if suspicion is None:
                # it has fallen back by itself meanwhile
                del self._conclusions[suspect]
            elif self._is_ripe(conclusion, suspicion, step):
                del self._conclusions[suspect]
                when = {"suspected_step": self._suspected.pop(suspect, step), "confirmed_step": step}
                final = replace(conclusion, step=step, evidence={**conclusion.evidence, **when})
                findings += detectors[suspect[0]].conclude(suspicion, final)
        return findings

    def _is_ripe(self, conclusion: Conclusion, suspicion: Suspicion, step: int) -> bool:
        """Whether the growth is old enough; what grew when the judging began has probably grown from the start."""
        began = self.resumed_after if suspicion.from_the_start else suspicion.first_step
        return conclusion.outcome is not Outcome.CONFIRMED or step - began >= self._config.confirm_after

    def _capture(self, births: Births) -> None:
        """Write the device's own snapshot of the watched steps, where it keeps one (CUDA, XPU)."""
        from tbmem.sources.survivors.history_backend import DeviceBirths

        if isinstance(births, DeviceBirths) and self._folder is not None:
            path = self._folder.snapshot(f"evidence-{self._windows}")
            self._guard.run(WRITING, births.snapshot, path)
            self._snapshot = path if path.exists() else None

    def _write(self, suspicion: Suspicion, evidence: Evidence, conclusion: Conclusion) -> Path | None:
        if self._folder is None:
            return None
        path = self._folder.evidence(self._windows)
        content = {"suspicion": asdict(suspicion), "evidence": asdict(evidence), "conclusion": asdict(conclusion)}
        with complete_or_nothing(path) as partial:
            partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        return path


def _current_suspicions(detectors: Mapping[str, Detector]) -> dict[Suspect, Suspicion]:
    return {
        (device, suspicion.channel): suspicion
        for device, detector in detectors.items()
        for suspicion in detector.suspicions
        if suspicion.channel in _IN_PROCESS
    }


def loop_frame() -> FrameType | None:
    """The innermost running frame that is not tbmem's own: the training loop, or the framework that runs it."""
    return next(stack_of(sys._getframe(1)), None)
