"""The process's one observer of failed CUDA requests: replaced by a list of what was attached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tbmem.runtime.oom import cuda_observer
from tbmem.runtime.oom.cuda_observer import FailedRequest, listen, stop_listening

Observer = Callable[[int, int, int, int], None]


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> list[Observer]:
    """What was attached as CUDA's observer."""
    observers: list[Observer] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", observers.append, raising=False)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: call())
    monkeypatch.setattr(cuda_observer._Observer, "attached_in", None)
    return observers


def test_the_latest_listener_alone_is_called_and_the_former_one_after_it(attached: list[Observer]) -> None:
    # given
    first: list[FailedRequest] = []
    second: list[FailedRequest] = []
    listen(first.append)
    listen(second.append)
    # when
    attached[0](1, 20, 80, 10)
    stop_listening(second.append)
    attached[0](1, 30, 80, 10)
    stop_listening(first.append)
    attached[0](1, 40, 80, 10)
    # then torch's observer, which cannot be detached, was attached once
    assert len(attached) == 1
    assert second == [FailedRequest(device=1, requested=20, allowed=80, free=10)]
    assert [request.requested for request in first] == [30]


@pytest.mark.parametrize("error", [ValueError("mine"), SystemExit(3), GeneratorExit()])
def test_what_a_listener_raises_never_reaches_the_allocator(attached: list[Observer], error: BaseException) -> None:
    def listener(request: FailedRequest) -> None:
        raise error

    listen(listener)
    try:
        attached[0](0, 20, 80, 10)
    finally:
        stop_listening(listener)


def test_an_interrupt_comes_after_the_out_of_memory_error(attached: list[Observer]) -> None:
    # given Ctrl-C while a listener explains the request
    def listener(request: FailedRequest) -> None:
        raise KeyboardInterrupt

    def ask() -> None:
        attached[0](0, 20, 80, 10)
        for _ in range(1_000_000):
            pass

    listen(listener)
    # when / then: it is not raised in the allocator, and is not lost
    try:
        with pytest.raises(KeyboardInterrupt):
            ask()
    finally:
        stop_listening(listener)


def test_an_allocator_without_observers_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, attached: list[Observer]
) -> None:
    # given an allocator that refuses, as cudaMallocAsync does
    def refuse(observer: Any) -> None:
        raise RuntimeError("cudaMallocAsync does not yet support attachOutOfMemoryObserver")

    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", refuse)
    # when
    listen(print)
    stop_listening(print)
    # then
    assert attached == []


def test_a_device_that_is_not_in_use_is_not_woken_up(monkeypatch: pytest.MonkeyPatch, attached: list[Observer]) -> None:
    # given CUDA before its first use: torch keeps the calls that wait for it
    waiting: list[Callable[[], None]] = []
    monkeypatch.setattr(torch.cuda, "_lazy_call", waiting.append)
    # when
    listen(print)
    before = list(attached)
    waiting[0]()
    stop_listening(print)
    # then
    assert before == []
    assert len(attached) == 1
