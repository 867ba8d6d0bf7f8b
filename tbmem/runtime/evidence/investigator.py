"""Investigates suspicions: examines a few steps, draws conclusions and writes the evidence."""

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
from tbmem.analysis.diagnosis.leak_cause import explain, working_sets
from tbmem.config.schema import EvidenceConfig
from tbmem.model.evidence import Channel, Conclusion, Evidence, Outcome, Suspicion
from tbmem.model.files import evidence_name
from tbmem.model.finding import Finding
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.counters.own_memory import OwnUse
from tbmem.sources.program.ownership import stack_of
from tbmem.units import parse_bytes
from tbmem.untraced import apart

if TYPE_CHECKING:  # loaded by prepare()
    from tbmem.runtime.evidence.session import EvidenceSession
    from tbmem.sources.survivors.tracker import SurvivorTracker

PART = "evidence"
_WORTH_A_LOOK = 0.5
"""Share of ``evidence.min_leak`` from which growth is investigated: the rate is an estimate, and growth far below the
smallest leak (Python's caches, a logger's) is not worth the cost."""
_AS_LONG = 1.25  # times as long as a holder has held something before that it may hold it again
_IN_PROCESS = (Channel.ALLOCATED, Channel.PEAK, Channel.RESERVED, Channel.HOST, Channel.HEAP)
"""Channels whose growth this process can explain; child processes are not examined."""
Suspect = tuple[str, Channel]


class Investigator:
    """Investigates suspicions one at a time, within the limits of a run.

    Args:
        config: Limits.
        folder: Folder of the evidence files; ``None`` writes none.
        guard: Handles errors.
        is_free: Returns whether no profiler window overlaps the next ``n`` steps.
        room: Returns the free bytes of a device, if known.
        open_session: ``session.open_session``, which is loaded on first use.
    """

    def __init__(
        self,
        config: EvidenceConfig,
        folder: RunFolder | None,
        guard: Guard,
        is_free: Callable[[int], bool] = lambda steps: True,
        room: Callable[[str], int | None] = lambda device: None,
        open_session: Callable[..., EvidenceSession] | None = None,
    ) -> None:
        self._config = config
        self._folder = folder
        self._guard = guard
        self._is_free = is_free
        self._room = room
        self._open_session = open_session
        self._session: EvidenceSession | None = None
        self._own_use: OwnUse | None = None
        self._is_interrupted = False
        self._snapshot: Path | None = None
        self._windows = 0
        self.resumed_after = 0
        """Steps before this run, if it was resumed from a checkpoint."""
        self._conclusions: dict[Suspect, Conclusion] = {}
        self._inconclusive: Counter[Suspect] = Counter()
        self._suspected: dict[Suspect, int] = {}
        self._working_sets: set[str] = set()
        """Names of holders that were seen to let go what they held."""

    @property
    def is_watching(self) -> bool:
        """Whether a session is open, so that the host's figures include tbmem's own memory."""
        return self._session is not None

    @property
    def is_waiting(self) -> bool:
        """Whether ``step`` must be called after each step."""
        return self._session is not None or bool(self._conclusions)

    def prepare(self) -> None:
        """Import what a session needs at the first steps: earlier it delays the start, later it appears as growth."""
        if self._open_session is None:
            self._open_session = apart(_session_opener)

    def step(self, step: int, detectors: Mapping[str, Detector], frame: FrameType | None) -> list[Finding]:
        """Process an evaluated step; returns the detectors' findings on new conclusions."""
        if PART in self._guard.failed:
            return []
        if self._is_interrupted:
            self.close()  # not at once: near the recursion limit there was no room for it
        self._is_interrupted = True
        findings = self._guard.run(PART, self._step, step, detectors, frame) or []
        if PART in self._guard.failed:
            self.close()
        return findings

    def close(self) -> None:
        """Close the open session."""
        if self._session is not None:
            self._guard.run("evidence (switching off)", self._session.abandon)
            self._session = None
            self._give_back()
        self._is_interrupted = False

    def _give_back(self) -> None:
        own_use, self._own_use = self._own_use, None
        if own_use is not None:
            own_use.give_back()

    def _step(self, step: int, detectors: Mapping[str, Detector], frame: FrameType | None) -> list[Finding]:
        current = _current_suspicions(detectors)
        if self._session is not None:
            evidence = self._session.advance(step, frame)
            if evidence is None:
                self._is_interrupted = False
                return []
            self._session = None
            self._conclude(evidence, current, detectors)
            self._give_back()
        findings = self._hand_over(step, current, detectors)
        for suspect, suspicion in _current_suspicions(detectors).items():
            growth = detectors[suspicion.device].growth_by_now(suspicion)
            is_new = suspect not in self._conclusions and self._is_worth_a_look(growth, suspicion.bytes_per_step)
            if is_new and self._windows < self._config.max_windows:
                self._begin(step, suspicion, frame)
                break
        self._is_interrupted = False
        return findings

    def _is_worth_a_look(self, growth: float, bytes_per_step: float) -> bool:
        """Whether growth may be a leak, by its rate, and by what the smallest leak has added when it may be called one.

        A look costs a second of a processor where hundreds of thousands of objects live, and the heap of an innocent
        program may grow by some 10 KiB in its first steps.
        """
        least = parse_bytes(self._config.min_leak)
        return growth >= least * self._config.confirm_after and bytes_per_step >= _WORTH_A_LOOK * least

    def _begin(self, step: int, suspicion: Suspicion, frame: FrameType | None) -> None:
        self.prepare()
        assert self._open_session is not None  # nosec B101  # for the type checker
        self._windows += 1
        self._suspected[suspicion.device, suspicion.channel] = step
        self._snapshot = None
        self._own_use = OwnUse()
        births = self._config.births and self._is_free(self._config.steps + suspicion.gap + 1)
        self._session = self._open_session(suspicion, self._config, self._capture, births=births)
        self._session.begin(step, frame)

    def _conclude(
        self, evidence: Evidence, current: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> None:
        for suspect, suspicion in current.items():
            lasts = evidence.last_step - suspicion.first_step
            # no longer than it has held it before: a list that was emptied once may leak later
            let_go = {name for name, held in detectors[suspicion.device].let_go.items() if lasts <= _AS_LONG * held}
            self._suspected.setdefault(suspect, evidence.first_step)
            self._working_sets.update(working_sets(suspicion, evidence))
            conclusion = explain(
                suspicion,
                evidence,
                min_rate=parse_bytes(self._config.min_leak),
                room=self._room(suspicion.device),
                allocated_growth=detectors[suspicion.device].allocated_growth(suspicion),
                looked_before=self._inconclusive[suspect],
                working_sets=self._working_sets | let_go,
            )
            self._inconclusive[suspect] += conclusion.outcome is Outcome.OPEN and not conclusion.lacks_survivors
            path = self._write(suspicion, evidence, conclusion)
            files = [file.name for file in (path, self._snapshot) if file is not None]
            if files:
                conclusion = replace(conclusion, evidence={**conclusion.evidence, "files": files})
            self._conclusions[suspect] = conclusion

    def _hand_over(
        self, step: int, current: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> list[Finding]:
        """Pass conclusions to the detectors; a leak waits until the growth has outlasted an epoch."""
        findings: list[Finding] = []
        least = parse_bytes(self._config.min_leak)
        for suspect, conclusion in list(self._conclusions.items()):
            suspicion = current.get(suspect)
            if suspicion is None:  # the growth has ended
                del self._conclusions[suspect]
                continue
            # growth seen at the first evaluation counts from the start
            began = self.resumed_after if suspicion.from_the_start else suspicion.first_step
            if conclusion.outcome is not Outcome.CONFIRMED or step - began >= self._config.confirm_after:
                del self._conclusions[suspect]
                if conclusion.outcome is Outcome.CONFIRMED and detectors[suspect[0]].lasting_rate(suspicion) < least:
                    conclusion = replace(conclusion, outcome=Outcome.OPEN)  # most of it was taken once
                when = {"suspected_step": self._suspected.pop(suspect, step), "confirmed_step": step}
                final = replace(conclusion, step=step, evidence={**conclusion.evidence, **when})
                findings += detectors[suspect[0]].conclude(suspicion, final)
        return findings

    def _capture(self, births: SurvivorTracker) -> None:
        from tbmem.sources.survivors.history_backend import HistorySurvivors

        if isinstance(births, HistorySurvivors) and self._folder is not None:
            path = self._folder.snapshot(f"evidence-{self._windows}")
            data = self._guard.run("evidence (snapshot)", births.snapshot, self._folder.redaction)
            if data is not None:
                self._folder.write(path, data)
                self._snapshot = path

    def _write(self, suspicion: Suspicion, evidence: Evidence, conclusion: Conclusion) -> Path | None:
        if self._folder is None:
            return None
        path = self._folder.path / evidence_name(self._windows)
        content = {"suspicion": asdict(suspicion), "evidence": asdict(evidence), "conclusion": asdict(conclusion)}
        self._folder.write(path, f"{json.dumps(self._folder.redaction.value(content), indent=1)}\n".encode())
        return path


def _session_opener() -> Callable[..., EvidenceSession]:
    from tbmem.runtime.evidence.session import open_session

    return open_session


def _current_suspicions(detectors: Mapping[str, Detector]) -> dict[Suspect, Suspicion]:
    return {
        (device, suspicion.channel): suspicion
        for device, detector in detectors.items()
        for suspicion in detector.suspicions
        if suspicion.channel in _IN_PROCESS
    }


def loop_frame() -> FrameType | None:
    """The innermost running frame outside tbmem: the training loop, or the framework that runs it."""
    return next(stack_of(sys._getframe(1)), None)
