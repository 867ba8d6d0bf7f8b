"""Whether an optimizer has stepped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tbmem import MemoryMonitor
from tbmem.runtime.process.optimizer_hook import UpdateTracker


@pytest.fixture
def watch() -> Iterator[UpdateTracker]:
    watch = UpdateTracker()
    yield watch
    watch.close()


def make_optimizer() -> torch.optim.Optimizer:
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    return torch.optim.SGD([parameter], lr=0.1)


def test_without_an_optimizer_nothing_is_known(watch: UpdateTracker) -> None:
    assert [watch.take(), watch.take()] == [None, None]


def test_each_step_of_an_optimizer_is_told_once(watch: UpdateTracker) -> None:
    # given
    optimizer = make_optimizer()
    # when gradients are gathered over two steps
    told = []
    for step in range(6):
        if step % 2 == 1:
            optimizer.step()
        told.append(watch.take())
    # then
    assert told == [None, True, False, True, False, True]


def test_any_of_several_optimizers_counts(watch: UpdateTracker) -> None:
    first, second = make_optimizer(), make_optimizer()
    first.step()
    second.step()
    assert [watch.take(), watch.take()] == [True, False]
    second.step()
    assert watch.take() is True


def test_two_watches_do_not_hide_steps_from_each_other(watch: UpdateTracker) -> None:
    other = UpdateTracker()
    make_optimizer().step()
    assert (watch.take(), other.take()) == (True, True)
    other.close()


def test_after_the_end_nothing_is_told(watch: UpdateTracker) -> None:
    watch.close()
    watch.close()
    make_optimizer().step()
    assert watch.take() is None


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
    assert [each.updated for each in samples] == [None, None, True, False, False, True]
