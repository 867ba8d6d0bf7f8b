"""Peaks of windows and of recorded blocks on the CPU: equal work, equal peaks."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tbmem
from tbmem.model.timeline import AllocationTimeline
from tbmem.sources.recording import read_recording
from tests.own_tensors import only_own_tensors

pytestmark = [
    pytest.mark.torch_versions,
    pytest.mark.skipif(torch.cuda.is_available() or torch.xpu.is_available(), reason="of the CPU's own traces"),
]

KIB = 1024


@pytest.fixture(autouse=True)
def no_tensors_of_others() -> Iterator[None]:
    """What other tests of the process keep is alive, too."""
    with only_own_tensors():
        yield


class Training:
    """A model and a loop whose tensors of a step live on into the next one."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = self.output = self.loss = torch.zeros(1)

    def step(self) -> None:
        self.batch = torch.randn(512, 256)
        self.output = self.model(self.batch) * 2
        self.loss = self.output.square().mean()
        self.loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def true_peak(self) -> int:
        """Of a few steps, by torch's own total, which is true where the profiler has seen all that there is."""
        with torch.profiler.profile(profile_memory=True) as seen:
            fresh = Training()
            for _ in range(3):
                fresh.step()
        events = memory_events(seen.profiler.kineto_results.experimental_event_tree())
        begin = events[0].total_allocated - events[0].alloc_size
        return max(event.total_allocated for event in events) - begin


def memory_events(nodes: list[Any]) -> list[Any]:
    found = []
    for node in nodes:
        found += [node.extra_fields] if node.name == "[memory]" else memory_events(node.children)
    return found


def windows(tmp_path: Path, training: Training, after_step: object = None, **others: object) -> list[int]:
    """Peaks of four windows."""
    overrides = [f"run.logdir={tmp_path}", "run.name=r", "profiling.repeat=4", "profiling.wait=2", "profiling.active=2"]
    overrides += [f"{key}={value}" for key, value in others.items()]
    with tbmem.MemoryCallback(overrides=overrides) as memory:
        memory.watch(training.model, training.optimizer)
        for _ in range(26):
            training.step()
            if callable(after_step):
                after_step()
            memory.step()
    return [peak(path) for path in sorted((tmp_path / "r").glob("*.pt.trace.json.gz"))]


def peak(path: Path) -> int:
    timeline: AllocationTimeline = tbmem.analyze(path).timeline
    return timeline.peak(0).bytes


def test_windows_of_a_constant_loop_have_one_peak_and_it_is_torchs(tmp_path: Path) -> None:
    training = Training()
    truth = training.true_peak()

    found = windows(tmp_path, training)

    assert len(found) == 4
    assert found == [pytest.approx(truth, rel=0.01)] * 4


def test_it_needs_no_address_book(tmp_path: Path) -> None:
    found = windows(tmp_path, Training(), **{"profiling.address_book": False})

    assert max(found) <= 1.01 * min(found)


def test_a_loop_that_grows_shows_by_how_much(tmp_path: Path) -> None:
    kept: list[torch.Tensor] = []

    found = windows(tmp_path, Training(), lambda: kept.append(torch.ones(64, 1024)))

    # then each window stands six steps of 256 KiB above the one before
    assert [after - before for before, after in zip(found, found[1:], strict=False)] == [
        pytest.approx(6 * 256 * KIB, rel=0.05)
    ] * 3


@pytest.mark.skipif(
    not hasattr(torch._C._autograd.SavedTensor, "data"), reason="this torch does not tell what a graph has saved"
)
def test_memory_that_only_a_graph_keeps_is_growth_as_well(tmp_path: Path) -> None:
    losses: list[torch.Tensor] = []
    weight = torch.ones(256, 256, requires_grad=True)

    found = windows(tmp_path, Training(), lambda: losses.append((torch.ones(64, 256) @ weight).exp().sum()))

    # then what a step keeps, 64 KiB of input and 64 KiB of exp's output, is counted in every step
    assert found[3] - found[0] == pytest.approx(18 * 128 * KIB, rel=0.1)


def test_equal_blocks_that_are_recorded_have_equal_peaks(tmp_path: Path) -> None:
    training, found = Training(), []
    training.step()
    for number in range(3):
        with tbmem.record(f"block{number}", logdir=str(tmp_path), model=training.model) as recording:
            training.step()
        training.step()
        found.append(peak(recording.files[0]))

    assert max(found) <= 1.01 * min(found)


def test_nothing_is_held_and_nothing_watched_after_the_window(tmp_path: Path) -> None:
    training = Training()
    training.step()
    batch = weakref.ref(training.batch)
    with tbmem.record(logdir=str(tmp_path)) as recording:
        training.step()

    assert batch() is None
    assert weakref.getweakrefcount(training.model[0].weight) == 0
    rows = read_recording(recording.files[0]).timeline.rows
    assert (rows.free_event[rows.bytes == 512 * KIB] >= 0).any()
