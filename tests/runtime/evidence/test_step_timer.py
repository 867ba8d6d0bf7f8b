"""The timer that each step starts again, with the kernel's own."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time

import pytest

from tbmem.runtime.evidence.step_timer import StepTimer

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="timers of the kernel are Linux's")


@on_linux
def test_it_expires_when_a_step_takes_long() -> None:
    # given
    timer = StepTimer()
    timer.set_limit(0.01)
    # when a step begins, and does not end
    timer.begin_step()
    # then once
    assert timer.wait(10)
    assert not timer.wait(0.03)
    timer.close()


@on_linux
def test_it_does_not_expire_while_steps_are_short() -> None:
    # given a thread that waits
    timer, expired = StepTimer(), []
    timer.set_limit(0.5)
    waiting = threading.Thread(target=lambda: expired.append(timer.wait(0.2)))
    waiting.start()
    # when steps follow each other
    while waiting.is_alive():
        timer.begin_step()
        time.sleep(0.01)
    # then
    assert expired == [False]
    timer.close()


@pytest.mark.parametrize("limit", [None, 5.0])
def test_without_a_limit_it_never_expires(limit: float | None) -> None:
    timer = StepTimer()
    timer.set_limit(limit)
    timer.begin_step()
    assert not timer.wait(0.02)
    timer.close()


@on_linux
def test_a_limit_that_is_taken_back_starts_it_no_more() -> None:
    # given
    timer = StepTimer()
    timer.set_limit(0.001)
    # when
    timer.set_limit(None)
    timer.begin_step()
    # then
    assert not timer.wait(0.02)
    timer.close()


def test_a_limit_that_is_set_after_its_end_does_nothing() -> None:
    # given
    timer = StepTimer()
    timer.end()
    # when
    timer.set_limit(0.001)
    # then the kernel is not called, which may have given its descriptor to a file of the program by the next step
    assert timer.begin_step() is None
    timer.close()


def test_its_end_ends_a_wait_at_once() -> None:
    # given
    timer, expired = StepTimer(), []
    waiting = threading.Thread(target=lambda: expired.append(timer.wait(60)))
    waiting.start()
    # when
    timer.end()
    waiting.join(10)
    # then
    assert expired == [False]
    assert timer.has_ended
    # and a step that begins later does nothing
    timer.begin_step()
    timer.close()
    timer.close()


@on_linux
def test_its_descriptor_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    timer = StepTimer()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    timer.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_elsewhere_it_waits_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a system without such timers
    monkeypatch.setattr(ctypes, "PyDLL", lambda name: object())
    timer = StepTimer()
    # when
    timer.set_limit(0.001)
    timer.begin_step()
    # then
    assert not timer.wait(0.01)
    timer.end()
    timer.close()
    assert timer.has_ended
