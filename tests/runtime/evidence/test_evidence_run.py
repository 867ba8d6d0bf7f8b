"""Real evidence in a real training: the leak is named, and the training is what it would have been without."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch

from tbmem.config import EvidenceConfig
from tbmem.model.evidence import Conclusion, Outcome
from tbmem.runtime.evidence.investigator import Investigator, loop_frame
from tbmem.runtime.process.guard import Guard
from tbmem.units import KIB
from tests.model.test_evidence import make_suspicion
from tests.runtime.detectors import FakeDetector

STEPS = 24
_SUSPECTED = 4


def suspicious_detector() -> FakeDetector:
    """Suspects the CPU's memory once."""
    return FakeDetector(make_suspicion(1, _SUSPECTED, 40 * KIB, from_the_start=True))


class Lens:
    """Steps the investigator as the monitor does."""

    def __init__(self, **config: Any) -> None:
        self.guard = Guard()
        self.detector = suspicious_detector()
        self.investigator = Investigator(EvidenceConfig(confirm_after=1, max_seconds=30.0, **config), None, self.guard)
        self.steps = 0

    def step(self) -> None:
        self.steps += 1
        if self.steps >= _SUSPECTED:
            self.investigator.step(self.steps, {"cpu": self.detector}, loop_frame())  # type: ignore[dict-item]

    def conclusion(self) -> Conclusion:
        self.investigator.close()
        assert not self.guard.problems
        [conclusion] = self.detector.concluded
        return conclusion


def train(after_step: Callable[[], None], *, keep: bool, compiled: bool = False) -> list[float]:
    """A small model with dropout; returns its losses."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Dropout(0.5), torch.nn.Linear(128, 64))
    forward = torch.compile(model, backend="eager") if compiled else model
    optimizer = torch.optim.Adam(model.parameters())
    history: list[torch.Tensor] = []
    losses: list[float] = []
    for _ in range(STEPS):
        batch = torch.randn(32, 64)
        loss = (forward(batch) - batch).square().mean()
        if keep:
            history.append(forward(batch))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        after_step()
    return losses


def test_the_losses_are_the_same_bit_for_bit_and_the_leak_is_named() -> None:
    # given
    plain = train(lambda: None, keep=True)
    lens = Lens()
    # when
    watched = train(lens.step, keep=True)
    # then
    assert watched == plain
    conclusion = lens.conclusion()
    assert conclusion.outcome is Outcome.CONFIRMED
    assert conclusion.evidence["holder"] == "list 'history' in train()"
    assert conclusion.evidence["line"]["text"] == "history.append(forward(batch))"
    assert conclusion.evidence["holders"][0]["line_known_by"] == "seen"
    site = conclusion.evidence["site"]
    assert 2 <= site["generations"] == site["watched_steps"]


def test_nothing_is_kept_alive() -> None:
    # given
    def storages() -> int:
        gc.collect()
        alive = {each.untyped_storage()._cdata for each in gc.get_objects() if issubclass(type(each), torch.Tensor)}
        return len(alive)

    train(lambda: None, keep=True)
    before = storages()
    lens = Lens()
    # when
    train(lens.step, keep=True)
    # then
    lens.conclusion()
    assert storages() == before


def test_a_debugger_is_left_alone_and_the_line_is_read() -> None:
    # given: somebody traces
    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        """Does nothing, as a debugger does most of the time."""

    before = sys.gettrace()
    lens = Lens()
    # when
    sys.settrace(tracer)
    try:
        train(lens.step, keep=True)
        still = sys.gettrace()
    finally:
        sys.settrace(before)
    # then
    assert still is tracer
    conclusion = lens.conclusion()
    assert conclusion.evidence["line"]["text"] == "history.append(forward(batch))"
    assert conclusion.evidence["holders"][0]["line_known_by"] == "read"


def test_a_training_in_a_thread_of_its_own() -> None:
    # given
    lens, plain = Lens(), train(lambda: None, keep=True)
    found: list[list[float]] = []
    thread = threading.Thread(target=lambda: found.append(train(lens.step, keep=True)))
    # when
    thread.start()
    thread.join()
    # then
    assert found == [plain]
    assert lens.conclusion().evidence["holder"] == "list 'history' in train()"


@pytest.mark.slow
def test_a_compiled_model() -> None:
    # given
    plain = train(lambda: None, keep=True, compiled=True)
    lens = Lens()
    # when
    watched = train(lens.step, keep=True, compiled=True)
    # then
    assert watched == plain
    assert lens.conclusion().evidence["holder"] == "list 'history' in train()"


def test_without_a_leak_nothing_is_confirmed() -> None:
    lens = Lens()
    train(lens.step, keep=False)
    assert lens.conclusion().outcome is not Outcome.CONFIRMED
