from __future__ import annotations

import io
import pickle
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.model.files import SNAPSHOT_PROTOCOL
from tbmem.sources.torch_state.memory_history import MemoryHistory, history_bytes
from tests.sources.fakes import FakeCuda, FakeMemory


@pytest.fixture
def memory() -> Iterator[FakeMemory]:
    yield FakeMemory()
    MemoryHistory._owner = None


class _RefusingUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"{module}.{name} has no place in a snapshot")


def _load(path: Path) -> Any:
    return _RefusingUnpickler(io.BytesIO(path.read_bytes())).load()


def _fill(memory: FakeMemory, events: int) -> None:
    for number in range(events):
        memory.note("alloc", 4096 + number, 512)


def test_the_ring_buffer_is_finite_and_the_stacks_are_python(memory: FakeMemory) -> None:
    # given
    history = MemoryHistory(memory, 1000)
    # when
    started = history.start()
    # then
    assert started
    assert MemoryHistory._owner is history
    assert memory.calls == [{"enabled": "all", "context": "all", "stacks": "python", "max_entries": 1000}]
    history.stop()


def test_a_history_is_counted_while_it_is_recorded(memory: FakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    history = MemoryHistory(memory, 1000)
    # when
    before = history_bytes()
    history.start()
    during = history_bytes()
    history.stop()
    # then
    assert (before, during, history_bytes()) == (0, 1000 << 10, 0)
    # and one that the program records, whose length it does not tell
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: True, raising=False)
    assert history_bytes() == 100_000 << 10


def test_stopping_switches_recording_off(memory: FakeMemory) -> None:
    # given
    history = MemoryHistory(memory, 1000)
    history.start()
    # when
    history.stop()
    # then
    assert not memory.is_recording
    assert MemoryHistory._owner is not history
    assert memory.calls[-1]["enabled"] is None


def test_stopping_twice_or_unstarted_touches_nothing(memory: FakeMemory) -> None:
    # given
    history = MemoryHistory(memory, 1000)
    # when
    history.stop()
    untouched = list(memory.calls)
    history.start()
    history.stop()
    history.stop()
    # then
    assert untouched == []
    assert [call["enabled"] for call in memory.calls] == ["all", None]


def test_the_second_starter_leaves_recording_to_its_owner(memory: FakeMemory) -> None:
    # given
    owner, second = MemoryHistory(memory, 1000), MemoryHistory(memory, 5)
    owner.start()
    # when
    started = second.start()
    second.stop()
    # then
    assert not started
    assert memory.is_recording
    assert len(memory.calls) == 1
    owner.stop()
    assert second.start()
    second.stop()


def test_the_second_starter_writes_from_the_owners_history(memory: FakeMemory, tmp_path: Path) -> None:
    # given a ring of 1000, of which the second starter would have kept 5
    owner, second = MemoryHistory(memory, 1000), MemoryHistory(memory, 5)
    owner.start()
    second.start()
    _fill(memory, 50)
    # when
    whole = second.write(tmp_path / "s.pickle")
    # then
    assert whole
    assert len(_load(tmp_path / "s.pickle")["device_traces"][0]) == 50
    owner.stop()


def test_a_history_that_the_users_own_code_switched_on_stays_on(
    memory: FakeMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: torch tells whether recording is on
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: memory.is_recording, raising=False)
    memory._record_memory_history(max_entries=1_000_000)
    history = MemoryHistory(memory, 5)
    # when
    history.start()
    history.stop()
    # then
    assert memory.is_recording
    assert len(memory.calls) == 1


def test_a_recording_that_cannot_start_has_no_owner(memory: FakeMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    def refuse(**_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(memory, "_record_memory_history", refuse)
    history = MemoryHistory(memory, 1000)
    # when
    with pytest.raises(RuntimeError):
        history.start()
    # then
    assert MemoryHistory._owner is None


def test_a_snapshot_is_a_pickle_of_protocol_4_without_classes(memory: FakeMemory, tmp_path: Path) -> None:
    # given
    path = tmp_path / "s.pickle"
    history = MemoryHistory(memory, 1000)
    history.start()
    _fill(memory, 3)
    # when
    whole = history.write(path)
    history.stop()
    # then
    protocols = [arg for opcode, arg, _ in pickletools.genops(path.read_bytes()) if opcode.name == "PROTO"]
    snapshot = _load(path)
    assert whole
    assert protocols == [SNAPSHOT_PROTOCOL] == [4]
    assert set(snapshot) >= {"segments", "device_traces"}
    assert [entry["action"] for entry in snapshot["device_traces"][0]] == ["alloc"] * 3
    assert snapshot["device_traces"][0][0]["frames"][0]["name"] == "step"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("events", "whole"), [(9, True), (11, False), (100, False)])
def test_an_overflow_is_reported(memory: FakeMemory, tmp_path: Path, events: int, whole: bool) -> None:
    # given
    history = MemoryHistory(memory, 10)
    history.start()
    # when
    _fill(memory, events)
    # then
    assert history.write(tmp_path / "s.pickle") is whole
    history.stop()


def test_a_snapshot_without_history_is_whole(memory: FakeMemory, tmp_path: Path) -> None:
    # given recording was never on, or torch gives no traces at all
    history = MemoryHistory(memory, 10)
    # then
    assert history.write(tmp_path / "s.pickle")


def test_a_snapshot_that_fails_leaves_no_file(memory: FakeMemory, tmp_path: Path) -> None:
    # given
    memory.failure = RuntimeError("CUDA error")
    history = MemoryHistory(memory, 10)
    # when
    with pytest.raises(RuntimeError, match="CUDA error"):
        history.write(tmp_path / "s.pickle")
    # then
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_an_os_error(memory: FakeMemory, tmp_path: Path) -> None:
    # given
    history = MemoryHistory(memory, 10)
    # then
    with pytest.raises(OSError, match="No such file"):
        history.write(tmp_path / "gone" / "s.pickle")


def test_the_history_is_that_of_the_accelerator(cuda: FakeCuda) -> None:
    # when
    history = MemoryHistory.of_this_process(77)
    # then
    assert history is not None
    history.start()
    assert cuda.memory.calls[0]["max_entries"] == 77
    history.stop()


def test_without_an_accelerator_there_is_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(torch, "cuda", FakeCuda(devices=0))
    # then
    assert MemoryHistory.of_this_process(77) is None


def test_a_gpu_that_the_process_does_not_use_is_left_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a training on the CPU of a machine with a GPU: torch's recording would make a CUDA context
    monkeypatch.setattr(torch, "cuda", FakeCuda(initialized=False))
    # and to ask an allocator that is not there yet ends the process
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: pytest.fail("asked"), raising=False)
    # then
    assert MemoryHistory.of_this_process(77) is None
    assert history_bytes() == 0


def test_other_allocators_than_torchs_keep_no_history(cuda: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MemoryHistory.of_this_process(1000) is not None
    monkeypatch.setattr(cuda.memory, "get_allocator_backend", lambda: "cudaMallocAsync", raising=False)
    assert MemoryHistory.of_this_process(1000) is None


@pytest.mark.parametrize("own", [{"max_entries": 7}, {"enabled": None}])
def test_a_history_that_the_program_sets_meanwhile_is_the_programs(memory: FakeMemory, own: dict[str, Any]) -> None:
    # given a history of tbmem's
    history = MemoryHistory(memory, 1000)
    torchs = memory._record_memory_history
    history.start()
    # when the program switches its own on, or history off
    memory._record_memory_history(**own)
    history.stop()
    # then it is left as the program wants it
    assert history.was_taken
    assert memory.is_recording == ("enabled" not in own)
    assert [call["enabled"] for call in memory.calls] == ["all", None, own.get("enabled", "all")]
    assert memory._record_memory_history == torchs
