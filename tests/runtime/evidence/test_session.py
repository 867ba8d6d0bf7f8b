"""One session of evidence with a hunt and births that are made by hand: its looks, its end and what it hands over."""

from __future__ import annotations

import gc
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest
import torch

from tbmem.config import EvidenceConfig
from tbmem.model.evidence import Channel, Evidence, Site, Suspicion
from tbmem.runtime.evidence import session as module
from tbmem.runtime.evidence.session import EvidenceSession, births_of, open_session
from tbmem.sources.survivors.profiler_backend import ProfilerSurvivors
from tests.runtime.evidence.fakes import LIST, FakeBirths, FakeHunt, suspicion


class Run:
    """A session that begins after step 48, and is told each step until it has its evidence."""

    def __init__(
        self,
        suspected: Suspicion,
        hunt: FakeHunt | None = None,
        births: FakeBirths | None = None,
        **config: Any,
    ) -> None:
        self.hunt, self.births = hunt or FakeHunt(), births or FakeBirths()
        self.captured: list[Any] = []
        fakes: tuple[Any, Any] = (self.hunt, self.births)
        self._session = EvidenceSession(suspected, EvidenceConfig(**config), *fakes, self._capture)

    def _capture(self, births: Any) -> None:
        assert not births.is_finished
        self.captured.append(births)

    def evidence(self, last: int = 200) -> Evidence:
        self._session.begin(48, None)
        for step in range(49, last + 1):
            evidence = self._session.advance(step, None)
            if evidence is not None:
                return evidence
        raise AssertionError("the session has no end")

    def abandon(self) -> None:
        self._session.begin(48, None)
        self._session.abandon()


def test_the_evidence_is_that_of_the_hunt_and_of_births() -> None:
    # given four looks, each ceil(steps / 3) steps after the one before, and a step that is traced
    run = Run(suspicion(), steps=8)
    # when
    evidence = run.evidence()
    # then
    assert run.hunt.looks == [48, 51, 54, 57]
    assert (evidence.first_step, evidence.last_step) == (48, 58)
    assert evidence.holders == (LIST,)
    assert evidence.sites == (Site(generations=5, steps=5),)
    assert evidence.notes == ("a note",)
    assert evidence.collector_on is gc.isenabled()
    assert run.captured == [run.births]
    assert run.births.began == 49
    assert run.hunt.is_closed


def test_growth_every_few_steps_is_watched_for_longer_without_births() -> None:
    # given memory that grows every 10 steps: as much is added between any two looks
    run = Run(suspicion(gap=10))
    # when
    evidence = run.evidence()
    # then
    assert run.hunt.looks == [48, 68, 88, 108]
    assert (run.births.began, run.captured, evidence.sites) == (0, [], None)


def test_looks_are_at_most_sixty_steps_apart_unless_that_is_asked_for() -> None:
    run, rare, longer = Run(suspicion(gap=50)), Run(suspicion(gap=90)), Run(suspicion(gap=90), steps=540)
    for each in (run, rare, longer):
        each.evidence(last=700)
    assert run.hunt.looks == [48, 98, 148, 198]
    assert rare.hunt.looks == [48, 108, 168, 228]
    assert longer.hunt.looks == [48, 228, 408, 588]


def test_a_line_that_is_not_seen_is_waited_for_a_little() -> None:
    # given growth every 3 steps, and a hunt that sees the line later than in the 4 steps that are traced
    run = Run(suspicion(gap=3), FakeHunt(lines_after=9))
    evidence = run.evidence()
    # then these are one stretch: what is traced is searched for once
    assert (run.hunt.traces, evidence.last_step - run.hunt.looks[-1], run.hunt.is_tracing) == (1, 4, False)


def test_tracing_ends_with_the_step_in_which_the_line_is_seen() -> None:
    run = Run(suspicion(gap=3), FakeHunt(lines_after=2))
    evidence = run.evidence()
    assert (evidence.last_step - run.hunt.looks[-1], run.hunt.is_tracing) == (2, False)


def test_without_tracing_the_last_look_is_the_end() -> None:
    run = Run(suspicion(), trace_lines=False)
    evidence = run.evidence()
    assert run.hunt.traces == 0
    assert evidence.last_step == run.hunt.looks[-1]


def test_births_that_have_seen_enough_end_early() -> None:
    run = Run(suspicion(), births=FakeBirths(full_after=3))
    run.evidence()
    assert run.births.marks == [49, 50, 51]
    assert run.captured == [run.births]


def test_births_do_not_record_our_own_looks() -> None:
    # given
    run = Run(suspicion())
    recorded: list[bool] = []
    look = run.hunt.look

    def noted(step: int, frame: FrameType | None) -> None:
        recorded.append(run.births.is_recording)
        look(step, frame)

    run.hunt.look = noted  # type: ignore[method-assign]
    # when
    run.evidence()
    # then
    assert recorded == [False] * 4


@pytest.mark.parametrize(
    ("seconds", "looks", "note"),
    [
        (2.0, 1, True),  # a second look would fit, a third not: growth cannot be told from noise
        (3.5, 3, False),
        (4.5, 4, False),
    ],
)
def test_looks_that_take_a_second_each(monkeypatch: pytest.MonkeyPatch, seconds: float, looks: int, note: bool) -> None:
    # given
    now = [100.0]
    monkeypatch.setattr(module.time, "thread_time", lambda: now[0])  # type: ignore[attr-defined]
    run = Run(suspicion(), max_seconds=seconds)
    look = run.hunt.look

    def slowly(step: int, frame: FrameType | None) -> None:
        now[0] += 1.0
        look(step, frame)

    run.hunt.look = slowly  # type: ignore[method-assign]
    # when
    evidence = run.evidence()
    # then
    assert len(run.hunt.looks) == looks
    assert any("one pass over this heap takes 1.0 s" in each for each in evidence.notes) is note
    assert evidence.search_seconds == (3.0 if note else 0.0)
    assert evidence.seconds == pytest.approx(looks)


def test_an_abandoned_session_leaves_nothing_on() -> None:
    run = Run(suspicion())
    run.abandon()
    assert run.births.is_abandoned
    assert run.hunt.is_closed


def test_births_that_cannot_be_abandoned_do_not_keep_the_hunt_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("broken")

    run = Run(suspicion())
    monkeypatch.setattr(run.births, "abandon", refuse)
    with pytest.raises(RuntimeError, match="broken"):
        run.abandon()
    assert run.hunt.is_closed


def test_each_device_has_its_own_way() -> None:
    assert isinstance(births_of("cpu"), ProfilerSurvivors)
    assert births_of("meta") is None
    assert births_of("mps:0") is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there_is_not_woken_up() -> None:
    assert births_of("cuda:0") is None
    assert births_of("xpu:0") is None


@pytest.mark.parametrize("births", [True, False])
def test_births_are_followed_where_they_may_be(monkeypatch: pytest.MonkeyPatch, births: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module, "births_of", asked.append)
    open_session(suspicion(), EvidenceConfig(), lambda _: None, births=births).abandon()
    assert asked == (["cpu"] if births else [])


def test_what_the_host_keeps_beside_a_gpu_is_followed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(module, "births_of", asked.append)
    for channel in (Channel.ALLOCATED, Channel.HEAP, Channel.HOST):
        seen = replace(suspicion(), device="cuda:0", channel=channel)
        open_session(seen, EvidenceConfig(), lambda _: None, births=True).abandon()
    assert asked == ["cuda:0", "cpu", "cpu"]
