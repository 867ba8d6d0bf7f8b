"""Loops that call ``step()`` for each micro-batch are told so, once; others are not."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest
import torch

from tbmem import MemoryMonitor
from tbmem.model.sample import MemorySample
from tbmem.runtime.process.accumulation import AccumulationNotice


def _samples(updated: Iterable[bool | None], devices: tuple[str, ...] = ("cuda:0",)) -> list[MemorySample]:
    return [
        MemorySample(step=step, time=step / 10, device=device, updated=stepped)
        for step, stepped in enumerate(updated, start=1)
        for device in devices
    ]


def _said(updated: Iterable[bool | None], devices: tuple[str, ...] = ("cuda:0",)) -> list[str]:
    notice = AccumulationNotice()
    # one by one, as in a loop of long steps
    return [said for sample in _samples(updated, devices) if (said := notice.add([sample])) is not None]


def _accumulating(parts: int, steps: int) -> list[bool | None]:
    first: list[bool | None] = [None] * (parts - 1)
    return [*first, *(step % parts == 0 for step in range(parts, steps + 1))]


@pytest.mark.parametrize("parts", [2, 4, 32])
def test_a_step_for_each_micro_batch_is_told_once(parts: int) -> None:
    (said,) = _said(_accumulating(parts, 40 * parts))

    assert said.startswith(f"step() is called {parts} times per optimizer step")
    assert "after optimizer.step()" in said


def test_two_devices_are_counted_once() -> None:
    (said,) = _said(_accumulating(4, 80), ("cuda:0", "cuda:1"))

    assert "called 4 times" in said


def test_the_rest_of_an_epoch_does_not_hide_it() -> None:
    # given ten micro-batches an epoch, of which the last two make a step of their own
    epoch = [False, False, False, True, False, False, False, True, False, True]

    assert len(_said(epoch * 10)) == 1


def test_steps_of_the_optimizer_with_a_validation_after_each_epoch_are_no_accumulation() -> None:
    assert _said(([True] * 20 + [False] * 7) * 20) == []


def test_loops_that_validate_at_irregular_times_are_no_accumulation() -> None:
    # given validations of other lengths
    gaps = [3, 5, 2, 7, 4, 6, 9, 1, 8]

    assert _said([stepped for gap in gaps * 4 for stepped in (*[False] * gap, True)]) == []


def test_a_loop_without_a_known_optimizer_is_not_judged() -> None:
    assert _said([None] * 200) == []


def test_after_some_steps_without_accumulation_nothing_more_is_observed() -> None:
    notice = AccumulationNotice()

    assert notice.add(_samples([True] * 100)) is None
    assert notice.is_done


def test_a_real_loop_is_told_and_has_no_finding(caplog: pytest.LogCaptureFixture) -> None:
    # given a loop that steps the monitor for each of four micro-batches
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())

    # when it trains
    with caplog.at_level(logging.INFO, "tbmem"), MemoryMonitor() as monitor:
        for micro_batch in range(64):
            model(torch.randn(8, 256)).square().mean().backward()
            if micro_batch % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
            monitor.step()

    # then one line says so, and nothing else is reported
    told = [record.getMessage() for record in caplog.records if "optimizer step" in record.getMessage()]
    assert [line.split(",")[0] for line in told] == ["step() is called 4 times per optimizer step"]
    assert monitor.findings == []
