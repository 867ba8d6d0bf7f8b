"""The investigator with hand-made detectors, hunts and births: when it looks, for how long, and what it hands over."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbmem.config import EvidenceConfig
from tbmem.model.evidence import (
    Channel,
    Holder,
    Outcome,
    Suspicion,
)
from tbmem.model.redaction import NOTHING_REDACTED, Redaction
from tbmem.runtime.evidence.investigator import PART, Investigator, loop_frame
from tbmem.runtime.evidence.session import EvidenceSession
from tbmem.runtime.process.guard import Guard
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.sources.survivors.history_backend import HistorySurvivors
from tbmem.units import KIB
from tests.runtime.detectors import FakeDetector
from tests.runtime.evidence.fakes import LIST, FakeBirths, FakeHunt, suspicion


class Setting:
    """An investigator with fakes around it."""

    def __init__(
        self,
        detector: FakeDetector,
        *,
        hunt: FakeHunt | None = None,
        births: FakeBirths | None = None,
        folder: RunFolder | None = None,
        is_free: Callable[[int], bool] = lambda steps: True,
        **config: Any,
    ) -> None:
        self.guard = Guard()
        self.hunt, self.births = hunt or FakeHunt(), births or FakeBirths()
        self.detector = detector
        self.investigator = Investigator(
            EvidenceConfig(**config),
            folder,
            self.guard,
            is_free,
            open_session=self._session,
        )

    def _session(self, suspected: Suspicion, config: EvidenceConfig, capture: Any, *, births: bool) -> EvidenceSession:
        tracker: Any = self.births if births else None
        hunt: Any = self.hunt
        return EvidenceSession(suspected, config, hunt, tracker, capture)

    def run(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.investigator.step(step, {"cpu": self.detector}, None)  # type: ignore[dict-item]


def test_a_suspicion_is_watched_for_a_few_steps_and_concluded() -> None:
    # given
    setting = Setting(FakeDetector(suspicion()))
    # when: suspected at 48, some steps are watched, one is traced
    setting.run(48, 57)
    assert setting.investigator.is_watching
    setting.run(58, 58)
    # then
    assert not setting.investigator.is_watching
    assert setting.hunt.looks == [48, 51, 54, 57]
    assert setting.births.began == 49
    assert setting.births.marks == [49, 50, 51, 52, 53, 54, 55, 56, 57]
    assert setting.births.is_finished
    assert setting.hunt.is_closed


def test_a_leak_waits_until_the_growth_is_too_old_for_an_epoch() -> None:
    # given: growth that began at step 20
    setting = Setting(FakeDetector(suspicion()))
    # when / then
    setting.run(48, 69)
    assert not setting.detector.concluded
    assert setting.investigator.is_waiting
    setting.run(70, 70)
    [conclusion] = setting.detector.concluded
    assert conclusion.outcome is Outcome.CONFIRMED
    assert conclusion.step == 70
    assert not setting.investigator.is_waiting


def test_growth_that_was_mostly_taken_once_is_left_open() -> None:
    # given: 64 KiB a step when it was suspected, and a few scalars since
    setting = Setting(FakeDetector(suspicion()))
    setting.detector.rate = 400
    # when
    setting.run(48, 70)
    # then
    [conclusion] = setting.detector.concluded
    assert conclusion.outcome is Outcome.OPEN


def test_what_grew_when_the_judging_began_is_as_old_as_the_run() -> None:
    setting = Setting(FakeDetector(suspicion(from_the_start=True)))
    setting.run(48, 58)
    assert setting.detector.concluded


def test_a_dismissal_does_not_wait() -> None:
    # given
    bounded = Holder(**{**{f: getattr(LIST, f) for f in LIST.__slots__}, "bound": 60})
    setting = Setting(FakeDetector(suspicion()), hunt=FakeHunt((bounded,)))
    # when
    setting.run(48, 58)
    # then
    assert setting.detector.concluded[0].outcome is Outcome.DISMISSED


def test_a_holder_that_was_seen_to_be_emptied_is_a_working_set_in_later_looks() -> None:
    # given
    emptied = replace(LIST, is_emptied=True)
    setting = Setting(FakeDetector(suspicion()), hunt=FakeHunt((emptied,)))
    setting.run(48, 58)
    # when it only grows in the steps of the next look, within a longer episode
    setting.hunt.holders = (LIST,)
    setting.detector.suspicions = (suspicion(),)
    setting.run(59, 120)
    # then
    assert [each.outcome for each in setting.detector.concluded] == [Outcome.DISMISSED] * 2


@pytest.mark.parametrize(("held", "outcome"), [(100, Outcome.DISMISSED), (20, Outcome.CONFIRMED)])
def test_what_a_holder_has_let_go_before_it_may_hold_as_long_again(held: int, outcome: Outcome) -> None:
    # given a leak that was withdrawn when its list was emptied; growth since step 20, watched until step 58
    setting = Setting(FakeDetector(suspicion()))
    setting.detector.let_go = {LIST.name: held}
    # when
    setting.run(48, 70)
    # then
    assert [each.outcome for each in setting.detector.concluded] == [outcome]


def test_growth_that_falls_back_meanwhile_is_forgotten() -> None:
    # given
    setting = Setting(FakeDetector(suspicion()))
    setting.run(48, 60)
    # when
    setting.detector.suspicions = ()
    setting.run(61, 80)
    # then
    assert not setting.detector.concluded
    assert not setting.investigator.is_waiting


@pytest.mark.parametrize(("per_step", "growth", "looks"), [(400, 60, 0), (700, 60, 4), (700, 40, 0)])
def test_growth_well_below_the_smallest_leak_is_not_worth_a_look(per_step: int, growth: int, looks: int) -> None:
    # given: leaks count from 1 KiB per step on, which makes 50 KiB until one may be called so
    setting = Setting(FakeDetector(replace(suspicion(per_step=per_step), level=growth * KIB)))
    # when
    setting.run(48, 70)
    # then
    assert len(setting.hunt.looks) == looks
    assert setting.investigator.is_waiting is False


def test_growth_that_was_too_small_when_it_was_suspected_is_looked_at_once_it_is_larger() -> None:
    # given
    detector = FakeDetector(replace(suspicion(per_step=700), level=40 * KIB))
    setting = Setting(detector)
    setting.run(48, 70)
    # when
    detector.growth = 60 * KIB
    setting.run(71, 90)
    # then
    assert len(setting.hunt.looks) == 4


def test_a_profiler_window_goes_before_births() -> None:
    asked: list[int] = []
    setting = Setting(FakeDetector(suspicion()), is_free=lambda steps: bool(asked.append(steps)))
    setting.run(48, 58)
    assert setting.births.began == 0
    assert asked[0] >= 7


def test_child_processes_are_not_looked_into() -> None:
    setting = Setting(FakeDetector(suspicion(channel=Channel.WORKERS)))
    setting.run(48, 80)
    assert not setting.hunt.looks


def test_a_run_has_only_so_many_sessions() -> None:
    # given: one suspicion after the other
    setting = Setting(FakeDetector(suspicion()), max_windows=2)
    # when
    for _ in range(5):
        setting.detector.suspicions = (suspicion(),)
        setting.run(48, 80)
    # then
    assert len(setting.detector.concluded) == 2


def test_what_was_seen_is_written_beside_the_run(tmp_path: Path) -> None:
    # given
    folder = RunFolder(tmp_path)
    setting = Setting(FakeDetector(suspicion()), folder=folder)
    # when
    setting.run(48, 80)
    folder.end()
    # then
    [conclusion] = setting.detector.concluded
    [name] = conclusion.evidence["files"]
    seen = json.loads((tmp_path / "plugins" / "tbmem" / name).read_text())
    assert seen["suspicion"]["first_step"] == 20
    assert seen["evidence"]["holders"][0]["name"] == "list 'losses' in train()"
    assert seen["evidence"]["notes"] == ["a note"]
    assert seen["conclusion"]["outcome"] == "confirmed"


class FakeDeviceBirths(FakeBirths, HistorySurvivors):
    """Survivors on a device that keeps a memory history."""

    def snapshot(self, redaction: Redaction = NOTHING_REDACTED) -> bytes:
        assert not self.is_finished
        return b"a pickle"


def test_a_devices_snapshot_lies_beside_the_run_too(tmp_path: Path) -> None:
    # given
    folder = RunFolder(tmp_path)
    setting = Setting(FakeDetector(suspicion()), births=FakeDeviceBirths(), folder=folder)
    # when
    setting.run(48, 80)
    folder.end()
    # then
    assert setting.detector.concluded[0].evidence["files"] == [
        "evidence-1.json",
        f"{folder.worker}.evidence-1.snapshot.pickle",
    ]
    assert (tmp_path / f"{folder.worker}.evidence-1.snapshot.pickle").read_bytes() == b"a pickle"


@pytest.mark.parametrize("method", ["look", "trace", "result"])
def test_an_error_switches_the_evidence_off_and_nothing_else(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    setting = Setting(FakeDetector(suspicion()))

    def break_down(*args: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(setting.hunt, method, break_down)
    # when
    setting.run(48, 80)
    # then
    assert setting.guard.problems == [f"{PART} is off: RuntimeError: broken"]
    assert setting.hunt.is_closed
    assert not setting.investigator.is_watching


def test_the_end_of_the_run_ends_a_session() -> None:
    # given
    setting = Setting(FakeDetector(suspicion()))
    setting.run(48, 50)
    # when
    setting.investigator.close()
    # then
    assert setting.births.is_abandoned
    assert setting.hunt.is_closed
    assert not setting.investigator.is_watching


def test_the_loop_is_the_first_frame_that_is_not_ours() -> None:
    frame = loop_frame()
    assert frame is not None
    assert frame.f_code.co_name == "test_the_loop_is_the_first_frame_that_is_not_ours"
