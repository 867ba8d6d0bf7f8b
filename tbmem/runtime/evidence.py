"""Suspicions and the next few steps go in; conclusions, and files of what was seen, come out: Investigator."""

from __future__ import annotations

import gc
import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

from tbmem.analysis.causes import explain
from tbmem.analysis.patterns import Detector
from tbmem.config.schema import EvidenceConfig
from tbmem.model.evidence import Channel, Conclusion, Evidence, Outcome, Site, Suspicion
from tbmem.model.files import complete_or_nothing
from tbmem.model.finding import Finding
from tbmem.runtime.guard import WRITING, Guard
from tbmem.runtime.run_folder import RunFolder
from tbmem.sources.births import Births, births_of
from tbmem.sources.device_births import DeviceBirths
from tbmem.sources.holders import HolderHunt

PART = "evidence"
"""Name of this part in the log and in the summary's problems."""
_LOOKS = 4
"""Censuses of a session, the first before its first step: three intervals tell growth from coming and going."""
_FEWEST_LOOKS = 3
"""Without three nothing can be said to grow; a heap too large for so many is not searched."""
_LONGEST_GAP = 30
"""Steps between two censuses at most, where memory grows only every few steps."""
_BIRTHS_GAP = 2
"""Births are followed where memory grows at least every so many steps; else too few generations would be seen."""
_WORTH_A_LOOK = 0.5
"""Share of ``evidence.min_leak`` from which on growth is looked into: a rate is an estimate, and what is well below the
smallest leak (Python's own caches, a logger's) would cost seconds of looking to be dismissed."""
_IN_PROCESS = (Channel.ALLOCATED, Channel.PEAK, Channel.RESERVED, Channel.HOST)
"""Channels whose growth this process can explain; child processes are not ours to look into."""

_OURS = ("tbmem.runtime.", "tbmem.integrations.")
"""Modules between a training loop and the evidence."""

Suspect = tuple[str, Channel]
"""A device and the channel that grows there."""


class Session:
    """One stretch of watched steps: censuses of who holds what, births in between, one traced step at the end.

    Args:
        suspicion: Growth that it is about; tells how far apart the looks must be.
        config: How much may be spent.
        hunt: Looks for what grows.
        births: Follows allocations; ``None`` where that cannot be done.
        capture: Called with the births before they end, to write what the device keeps of them.
        clock: Seconds; this thread's own, so that other work on the machine does not count.
    """

    def __init__(
        self,
        suspicion: Suspicion,
        config: EvidenceConfig,
        hunt: HolderHunt,
        births: Births | None,
        capture: Callable[[Births], object] = lambda births: None,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._config = config
        self._capture = capture
        self._clock = clock
        self._hunt = hunt
        self._births = births if suspicion.gap <= _BIRTHS_GAP else None
        spacing = math.ceil(config.steps / (_LOOKS - 1))
        self._spacing = min(max(spacing, math.ceil(1.5 * suspicion.gap)), _LONGEST_GAP)
        self._traces_left = suspicion.gap + 1 if config.trace_lines else 0
        self._looks_left = _LOOKS
        self._is_tracing = False
        self._first_step = self._next_look = 0
        self._sites: tuple[Site, ...] | None = None
        self._sizes_grow = 0.0
        self._notes: list[str] = []
        self._seconds = 0.0

    def begin(self, step: int, frame: FrameType | None) -> None:
        """``step`` has ended; the next one is watched."""
        self._first_step = step
        self._look(step, frame)
        if self._births is not None:
            self._timed(self._births.begin, step + 1)

    def advance(self, step: int, frame: FrameType | None) -> Evidence | None:
        """A watched step has ended.

        Returns:
            The evidence, when enough has been seen.
        """
        if self._is_tracing:
            return self._advance_trace(step, frame)
        self._end_step(step, lambda: self._look(step, frame) if step >= self._next_look else None)
        if self._looks_left:
            return None
        self._finish_births()
        return self._trace_or_finish(step, frame)

    def abandon(self) -> None:
        """Switch everything off; what was seen is lost."""
        try:
            if self._births is not None:
                self._births.abandon()
        finally:
            self._hunt.close()

    def _look(self, step: int, frame: FrameType | None) -> None:
        self._looks_left -= 1
        self._next_look = step + self._spacing
        took = self._timed(self._hunt.look, step, frame)
        affordable = self._config.max_seconds / max(took, 1e-9)
        if self._looks_left and affordable < _FEWEST_LOOKS:
            self._looks_left = 0
            self._notes.append(f"the search for holders was cut short: one look at this heap takes {took:.1f} s")
        elif self._looks_left == 1 and affordable < _LOOKS:
            self._looks_left = 0

    def _end_step(self, step: int, look: Callable[[], None]) -> None:
        """Hand the step over to the births, and look while they do not record."""
        births = self._births
        if births is None:
            look()
            return
        began, before = self._clock(), self._seconds
        births.mark(step, look)
        looking = self._seconds - before
        self._seconds += self._clock() - began - looking
        if births.is_full:
            self._finish_births()

    def _finish_births(self) -> None:
        births, self._births = self._births, None
        if births is None:
            return
        self._capture(births)
        began = self._clock()
        report = births.finish()
        self._seconds += self._clock() - began
        self._sites, self._sizes_grow = report.sites, report.sizes_grow
        self._notes += report.notes

    def _trace_or_finish(self, step: int, frame: FrameType | None) -> Evidence | None:
        began = self._clock()
        self._is_tracing = self._traces_left > 0 and self._hunt.trace(frame)
        self._seconds += self._clock() - began
        return None if self._is_tracing else self._result(step, frame)

    def _advance_trace(self, step: int, frame: FrameType | None) -> Evidence | None:
        self._traces_left -= 1
        if self._hunt.untrace():
            return self._result(step, frame)
        return self._trace_or_finish(step, frame)

    def _result(self, step: int, frame: FrameType | None) -> Evidence:
        began = self._clock()
        holders, notes = self._hunt.result(frame)
        self._hunt.close()
        self._seconds += self._clock() - began
        return Evidence(
            first_step=self._first_step,
            last_step=step,
            holders=holders,
            sites=self._sites,
            sizes_grow=self._sizes_grow,
            collector_on=gc.isenabled(),
            notes=(*self._notes, *notes),
            seconds=self._seconds,
        )

    def _timed(self, call: Callable[..., None], *args: object) -> float:
        began = self._clock()
        call(*args)
        took = self._clock() - began
        self._seconds += took
        return took


class Investigator:
    """Looks into suspicions, one after the other, within the budget of a run.

    Args:
        config: How much may be spent.
        folder: Where the files of what was seen go; ``None`` writes none.
        guard: Where errors go.
        is_free: Whether no profiler window comes up in the next so many steps.
        room: Bytes that are still free on a device, where that is known.
        births: Returns what follows allocations on a device; a test gives its own.
        hunt: Makes what looks for holders; a test gives its own.
    """

    def __init__(
        self,
        config: EvidenceConfig,
        folder: RunFolder | None,
        guard: Guard,
        is_free: Callable[[int], bool] = lambda steps: True,
        room: Callable[[str], int | None] = lambda device: None,
        births: Callable[[str], Births | None] = births_of,
        hunt: Callable[[], HolderHunt] = HolderHunt,
    ) -> None:
        self._config = config
        self._folder = folder
        self._guard = guard
        self._is_free = is_free
        self._room = room
        self._births_of = births
        self._make_hunt = hunt
        self._session: Session | None = None
        self._snapshot: Path | None = None
        self._windows = 0
        self.resumed_after = 0
        """Steps before this run, in a training that goes on."""
        self._drawn: dict[Suspect, Conclusion] = {}
        self._left_open: Counter[Suspect] = Counter()
        self._suspected: dict[Suspect, int] = {}

    @property
    def is_watching(self) -> bool:
        """Whether a session is open: the host's figures are not the training's alone."""
        return self._session is not None

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to do at each step."""
        return self._session is not None or bool(self._drawn)

    def step(self, step: int, detectors: Mapping[str, Detector], frame: FrameType | None) -> list[Finding]:
        """A step has ended and was judged.

        Args:
            step: Its number.
            detectors: The detector of each device.
            frame: The frame of the training loop.

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
        standing = _standing(detectors)
        if self._session is not None:
            evidence = self._session.advance(step, frame)
            if evidence is None:
                return []
            self._session = None
            self._conclude(evidence, standing, detectors)
        findings = self._hand_over(step, standing, detectors)
        new = [
            each
            for suspect, each in _standing(detectors).items()
            if suspect not in self._drawn and each.bytes_per_step >= _WORTH_A_LOOK * self._config.min_leak_bytes
        ]
        if new and self._windows < self._config.max_windows:
            self._begin(step, new[0], frame)
        return findings

    def _begin(self, step: int, suspicion: Suspicion, frame: FrameType | None) -> None:
        self._windows += 1
        self._suspected[suspicion.device, suspicion.channel] = step
        length = self._config.steps + suspicion.gap + 1
        births = self._births_of(suspicion.device) if self._config.births and self._is_free(length) else None
        self._snapshot = None
        self._session = Session(suspicion, self._config, self._make_hunt(), births, self._capture)
        self._session.begin(step, frame)

    def _conclude(
        self, evidence: Evidence, standing: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> None:
        for suspect, suspicion in standing.items():
            self._suspected.setdefault(suspect, evidence.first_step)
            conclusion = explain(
                suspicion,
                evidence,
                min_rate=self._config.min_leak_bytes,
                room=self._room(suspicion.device),
                looked_before=self._left_open[suspect],
            )
            self._left_open[suspect] += conclusion.outcome is Outcome.OPEN
            path = self._guard.run(WRITING, self._write, suspicion, evidence, conclusion)
            files = [each.name for each in (path, self._snapshot) if each is not None]
            if files:
                conclusion = replace(conclusion, evidence={**conclusion.evidence, "files": files})
            self._drawn[suspect] = conclusion

    def _hand_over(
        self, step: int, standing: Mapping[Suspect, Suspicion], detectors: Mapping[str, Detector]
    ) -> list[Finding]:
        """Give the detectors their conclusions; a leak waits until the growth is old enough to be no epoch."""
        findings: list[Finding] = []
        for suspect, conclusion in list(self._drawn.items()):
            suspicion = standing.get(suspect)
            if suspicion is None:
                # it has fallen back by itself meanwhile
                del self._drawn[suspect]
            elif self._is_ripe(conclusion, suspicion, step):
                del self._drawn[suspect]
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


def _standing(detectors: Mapping[str, Detector]) -> dict[Suspect, Suspicion]:
    return {
        (device, suspicion.channel): suspicion
        for device, detector in detectors.items()
        for suspicion in detector.suspicions
        if suspicion.channel in _IN_PROCESS
    }


def loop_frame() -> FrameType | None:
    """The innermost running frame that is not tbmem's own: the training loop, or the framework that runs it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame = frame.f_back
    return frame
