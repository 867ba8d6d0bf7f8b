"""Listeners of optimizer steps, and the tracker of updates."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook

from tbmem import MemoryMonitor
from tbmem.runtime.process.optimizer_hook import OptimizerHook, UpdateTracker


def _step() -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    parameter.grad = torch.ones(1)
    torch.optim.SGD([parameter], lr=0.1).step()


def test_one_that_leaves_while_it_is_told_does_not_break_the_training() -> None:
    # given two listeners, and a hook of the program's own that comes after them
    told: list[str] = []
    stays = OptimizerHook(lambda _optimizer: told.append("stays"))

    def leave(_optimizer: torch.optim.Optimizer) -> None:
        told.append("leaves")
        leaves.remove()

    leaves = OptimizerHook(leave)
    programs = register_optimizer_step_post_hook(lambda *_: told.append("the program's"))

    # when one of them goes in the middle of a step
    _step()
    _step()

    # then torch, which goes through its hooks meanwhile, has not noticed
    assert told == ["stays", "leaves", "the program's", "stays", "the program's"]
    programs.remove()
    stays.remove()
    stays.remove()
    assert not _global_optimizer_post_hooks


# UpdateTracker


@pytest.fixture
def tracker() -> Iterator[UpdateTracker]:
    tracker = UpdateTracker()
    yield tracker
    tracker.close()


def make_optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    return torch.optim.SGD([parameter], lr=0.1)


def test_without_an_optimizer_nothing_is_known(tracker: UpdateTracker) -> None:
    assert [tracker.take(), tracker.take()] == [None, None]


def test_each_step_of_an_optimizer_is_seen_once(tracker: UpdateTracker) -> None:
    # given
    optimizer = make_optimizer()
    # when gradients are gathered over two steps
    seen = []
    for step in range(6):
        if step % 2 == 1:
            optimizer.step()
        seen.append(tracker.take())
    # then
    assert seen == [None, True, False, True, False, True]


def test_any_of_several_optimizers_counts(tracker: UpdateTracker) -> None:
    first, second = make_optimizer(), make_optimizer()
    first.step()
    second.step()
    assert [tracker.take(), tracker.take()] == [True, False]
    second.step()
    assert tracker.take() is True


def test_two_trackeres_do_not_hide_steps_from_each_other(tracker: UpdateTracker) -> None:
    other = UpdateTracker()
    make_optimizer().step()
    assert (tracker.take(), other.take()) == (True, True)
    other.close()


def test_after_the_end_nothing_is_seen(tracker: UpdateTracker) -> None:
    tracker.close()
    tracker.close()
    make_optimizer().step()
    assert tracker.take() is None


def test_the_monitors_samples_know_it() -> None:
    # given
    optimizer = make_optimizer()
    samples = []
    with MemoryMonitor(console=False, devices="cpu", log_every_n_steps=100) as monitor:
        assert monitor._counters is not None
        sample = monitor._counters.sample
        # when every third step updates
        for step in range(1, 7):
            if step % 3 == 0:
                optimizer.step()
            samples += sample(step, thorough=False)
    # then
    assert [sample.updated for sample in samples] == [None, None, True, False, False, True]
