"""SurvivorTracker on a device, with a stand-in for torch's allocator."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tbmem.model.evidence import CodeLine
from tbmem.runtime.evidence.session import births_of
from tbmem.sources.survivors.history_backend import HistorySurvivors

MIB = 1 << 20
Frames = list[dict[str, Any]]


def _frames(line: int) -> Frames:
    return [
        {"filename": torch.nn.functional.__file__, "line": 1, "name": "linear"},
        {"filename": __file__, "line": line, "name": "step"},
        {"filename": torch.__file__, "line": 1, "name": "main"},
    ]


class OlderMemory:
    """``torch.xpu.memory``, or ``torch.cuda.memory`` before 2.12: whole snapshots only, no metadata."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.failure: Exception | None = None
        self.is_recording = False
        self.snapshots = 0
        self.requested = 0
        self.unsplit = 0
        self._left_over = cycle((MIB - 512, 512, 0))
        self._blocks: dict[int, tuple[int, Frames]] = {}

    def malloc(self, size: int, line: int | None, address: int | None = None) -> int:
        """Allocate from a line of this file; from autograd's own thread if there is none."""
        if address is None:
            address = next(free for free in count(0, 512 * MIB) if free not in self._blocks)
        self._blocks[address] = size, _frames(line) if self.is_recording and line is not None else []
        self.requested += size
        # what is left of a block that it is cut from, less than 1 MiB, stays with it: now more, now less
        self.unsplit += next(self._left_over) if size > MIB else 0
        return address

    def free(self, address: int) -> None:
        del self._blocks[address]

    def memory_snapshot(self, mempool_id: Any = None) -> list[dict[str, Any]]:
        self.snapshots += 1
        if self.failure is not None:
            raise self.failure
        return [self._segment(device, blocks) for device, blocks in ((0, self._blocks), (1, {7: (MIB, _frames(99))}))]

    def _segment(self, device: int, used: dict[int, tuple[int, Frames]]) -> dict[str, Any]:
        """One segment with everything in it, and holes between the blocks."""
        blocks: list[dict[str, Any]] = []
        end = 0
        for address, (size, frames) in sorted(used.items()):
            if address > end:
                blocks.append({"size": address - end, "requested_size": 0, "state": "inactive", "frames": []})
            rounded = -(-size // 512) * 512
            state = "active_allocated"
            blocks.append({"size": rounded, "requested_size": size, "state": state, "frames": frames})
            end = address + rounded
        return {"device": device, "address": 0, "blocks": blocks}

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        return {
            "allocated_bytes": {"all": {"allocated": self.requested + self.unsplit}},
            "requested_bytes": {"all": {"allocated": self.requested}},
        }

    def _record_memory_history(
        self, enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = 1
    ) -> None:
        self.calls.append({"enabled": enabled, "context": context, "stacks": stacks})
        self.is_recording = enabled is not None

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": self.memory_snapshot(), "device_traces": []}


class Memory(OlderMemory):
    """``torch.cuda.memory`` of today."""

    def __init__(self) -> None:
        super().__init__()
        self.metadata = "theirs"
        self.labels: list[str] = []

    def memory_snapshot(self, mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        assert not include_traces or mempool_id == "whole"
        return super().memory_snapshot()

    def _snapshot(self) -> dict[str, Any]:
        return {"segments": self.memory_snapshot("whole"), "device_traces": []}

    def _set_memory_metadata(self, metadata: str) -> None:
        self.metadata = metadata
        self.labels.append(metadata)

    def _get_memory_metadata(self) -> str:
        return self.metadata


@pytest.fixture(params=[Memory, OlderMemory])
def memory(request: pytest.FixtureRequest) -> Iterator[Any]:
    made = request.param()
    yield made
    assert not made.is_recording


def _line(number: int) -> CodeLine:
    text = Path(__file__).read_text().splitlines()[number - 1].strip()
    return CodeLine(file=__file__, line=number, function="step", text=text)


def test_a_leak_keeps_a_block_of_every_step(memory: Any) -> None:
    # given memory from before, and a tensor that is kept in each of five steps
    memory.malloc(8 * MIB, 5)
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    for step in range(5):
        memory.malloc(MIB + 1, 3)
        births.mark(step)

    # when
    report = births.finish()

    # then
    assert report.sites is not None
    (site,) = report.sites
    assert (site.generations, site.steps, site.bytes_per_step) == (4, 4, MIB + 1)
    assert site.stack == (_line(3),)
    assert not site.in_backward
    assert report.sizes_grow == 0
    assert report.seconds > 0


def test_what_is_replaced_survives_in_no_step(memory: Any) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    held = memory.malloc(MIB, 3)
    for step in range(5):
        new = memory.malloc(MIB, 3)
        memory.free(held)
        held = new
        births.mark(step)

    assert births.finish().sites == ()


def test_a_block_that_another_place_uses_again_is_a_new_birth(memory: Any) -> None:
    # given one address that two lines use in turn
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    for step in range(6):
        memory.malloc(MIB, 3 + step % 2, address=0)
        births.mark(step)
        memory.free(0)

    assert births.finish().sites == ()


def test_what_has_no_python_stack_is_autograds(memory: Any) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    for step in range(3):
        memory.malloc(MIB, None)
        births.mark(step)

    report = births.finish()

    assert report.sites is not None
    (site,) = report.sites
    assert site.in_backward
    assert site.stack == ()
    assert site.share == 1


@pytest.mark.parametrize(("curriculum", "grow"), [(True, 1.0), (False, 0.0)])
def test_a_curriculum_is_told_from_one_tensor_that_grows(memory: Any, curriculum: bool, grow: float) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    held = memory.malloc(MIB, 3)
    for step in range(6):
        memory.free(memory.malloc(MIB * (8 + step if curriculum else 8), 4))
        new = memory.malloc(MIB * (step + 2), 3)
        memory.free(held)
        held = new
        births.mark(step)

    report = births.finish()

    assert report.sites is not None
    assert report.sites[0].growing
    assert report.sites[0].share == 0
    assert report.sizes_grow == grow


def test_recording_has_python_stacks_and_is_switched_off_again() -> None:
    memory = Memory()
    births = HistorySurvivors(memory, 0)
    births.begin(7)
    births.mark(7)
    births.finish()

    assert memory.calls == [
        {"enabled": "all", "context": "alloc", "stacks": "python"},
        {"enabled": None, "context": "all", "stacks": "all"},
    ]
    assert memory.labels == ["step=7", "step=8", "theirs"]


def test_where_every_snapshot_holds_the_events_none_are_kept() -> None:
    memory = OlderMemory()
    births = HistorySurvivors(memory, 0)
    births.begin(7)
    births.abandon()

    assert memory.calls[0] == {"enabled": "state", "context": "state", "stacks": "python"}


def test_a_history_that_is_on_already_is_used_and_left_on() -> None:
    memory = Memory()
    memory.is_recording = True
    births = HistorySurvivors(memory, 0, history_is_on=True)
    births.begin(0)
    for step in range(4):
        memory.malloc(MIB, 3)
        births.mark(step)
    report = births.finish()

    assert report.sites is not None
    assert report.sites[0].share == 1
    assert memory.calls == []
    assert memory.is_recording


def test_a_history_that_is_on_already_and_cannot_be_read_in_parts_is_left_alone() -> None:
    memory = OlderMemory()
    births = HistorySurvivors(memory, 0, history_is_on=True)
    births.begin(0)
    assert births.is_full
    births.mark(0)
    report = births.finish()

    assert report.sites is None
    assert report.notes == ("memory history is recorded already, and is too long to be read in each step",)
    assert memory.calls == []
    assert memory.snapshots == 0


def test_an_error_leaves_nothing_switched_on(memory: Any) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    memory.failure = RuntimeError("no snapshot")

    with pytest.raises(RuntimeError, match="no snapshot"):
        births.mark(0)

    assert not memory.is_recording
    assert births.is_full
    births.abandon()


def test_a_window_that_was_abandoned_has_nothing_to_report(memory: Any) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    births.abandon()
    births.abandon()

    assert births.finish().sites is None


def test_when_reading_takes_long_the_window_is_full(memory: Any) -> None:
    # given a clock by which each call takes a second
    births = HistorySurvivors(memory, 0)
    births.budget, births.clock = 1.5, count().__next__
    births.begin(0)
    assert not births.is_full
    for step in range(3):
        births.mark(step)

    assert births.is_full
    births.abandon()


def test_the_snapshot_is_a_plain_pickle(memory: Any) -> None:
    births = HistorySurvivors(memory, 0)
    births.begin(0)
    memory.malloc(MIB, 3)
    content = births.snapshot()
    births.abandon()

    assert content[:2] == bytes([0x80, 4])
    assert pickle.loads(content)["segments"][0]["blocks"][0]["frames"] == _frames(3)


@pytest.mark.parametrize("kind", ["cuda", "xpu"])
def test_a_device_in_use_has_births(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    memory = Memory()
    module = SimpleNamespace(memory=memory, is_available=lambda: True, is_initialized=lambda: True)
    monkeypatch.setattr(torch, kind, module)

    births = births_of(f"{kind}:0")

    assert isinstance(births, HistorySurvivors)
    births.begin(0)
    assert memory.is_recording
    births.abandon()


def test_torch_has_every_function_that_is_used() -> None:
    for name in ("_record_memory_history", "memory_snapshot", "memory_stats_as_nested_dict", "_snapshot"):
        for module in (torch.cuda.memory, torch.xpu.memory):
            assert callable(getattr(module, name)), name
