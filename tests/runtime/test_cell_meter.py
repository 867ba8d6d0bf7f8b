"""Memory of a piece of a program without steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbmem.runtime.cell_meter import CellMeter
from tbmem.runtime.process.guard import Guard
from tbmem.sources.retainers import live_memory
from tests.conftest import MIB
from tests.sources.fakes import FakeCuda

kept: list[torch.Tensor] = []
arrays: list[np.ndarray] = []


def test_what_is_kept_and_what_was_needed() -> None:
    # given a piece that keeps 8 MiB, and for a moment needs 64
    meter = CellMeter(Guard())
    try:
        kept.extend(torch.ones(MIB // 4) for _ in range(8))
        torch.ones(16 * MIB)
        cell = meter.end(ValueError("x"))
    finally:
        kept.clear()

    # then both are seen
    (levels,) = cell.levels
    assert levels.device == "cpu"
    assert levels.change is not None
    assert 8 * MIB <= levels.change < 12 * MIB
    assert levels.peak is not None
    assert levels.after is not None
    assert levels.peak - levels.after > 48 * MIB
    (holder,) = [one for one in cell.kept if "'kept'" in one.name]
    assert holder.bytes == 8 * MIB
    assert cell.exception == "ValueError"


def test_nothing_is_kept_where_nothing_was_made() -> None:
    meter = CellMeter(Guard())

    assert not [one for one in meter.end().kept if "kept" in one.name]


def test_what_was_there_before_is_not_kept_because_the_second_search_came_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given an array and a tensor that a first search has not come to
    kept.append(torch.ones(MIB // 4))
    arrays.append(np.ones(MIB // 8))
    try:
        monkeypatch.setattr(live_memory, "_TRAVERSAL", (1, 1.0))
        meter = CellMeter(Guard())
        monkeypatch.undo()
        kept.append(torch.ones(MIB // 2))
        # when
        cell = meter.end()
    finally:
        kept.clear()
        arrays.clear()
    # then
    assert [one.bytes for one in cell.kept if "'kept'" in one.name] == [2 * MIB]
    assert not [one for one in cell.kept if "'arrays'" in one.name]


def test_levels_may_be_read_meanwhile() -> None:
    meter = CellMeter(Guard())

    assert meter.now()["cpu"] > MIB
    meter.close()


def test_on_a_gpu_it_is_the_allocators_levels(cuda: FakeCuda) -> None:
    meter = CellMeter(Guard())

    cuda.malloc(3 * MIB)
    cuda.malloc(2 * MIB)

    (levels,) = meter.end().levels
    assert (levels.device, levels.counter) == ("cuda:0", "peak_allocated")
    assert levels.change == 5 * MIB
    assert levels.peak == levels.after
