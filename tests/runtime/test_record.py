"""tbmem.record around any code."""

from __future__ import annotations

import gzip
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import tbmem
from tests.sources.fakes import FakeCuda


def test_on_the_cpu_the_trace_serves(tmp_path: Path) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    model = torch.nn.Linear(8, 8)

    with tbmem.record("mine", logdir=str(tmp_path), model=model) as recording:
        model(torch.randn(4, 8)).sum().backward()

    assert [path.suffix for path in recording.files] == [".gz", ".npz"]
    assert all(path.parent == tmp_path / "mine" for path in recording.files)
    names = {note.name for note in tbmem.AddressBook.load(recording.files[1]).notes()}
    assert {"weight", "bias"} <= names


def test_an_exception_inside_passes_on_and_the_record_is_kept(tmp_path: Path) -> None:
    recordings = []

    def fails() -> None:
        with tbmem.record(logdir=str(tmp_path)) as recording:
            recordings.append(recording)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fails()
    assert recordings[0].files


def test_inside_a_profiler_it_records_nothing_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    with (
        caplog.at_level(logging.WARNING, "tbmem"),
        torch.profiler.profile(),
        tbmem.record(logdir=str(tmp_path)) as recording,
    ):
        torch.randn(4)

    assert recording.files == []
    assert "another torch profiler is running" in caplog.text


def test_a_folder_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(tbmem.RunFolderError), tbmem.record(logdir=str(tmp_path / "file")):
        pass


def _record(tmp_path: Path, **options: Any) -> Any:
    return tbmem.record("run", logdir=str(tmp_path), **options)


def _snapshots(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "run").glob("*.snapshot.pickle"))


def test_record_writes_a_snapshot_and_is_off_again(cuda: FakeCuda, tmp_path: Path) -> None:
    # when
    with _record(tmp_path, max_entries=50) as recording:
        cuda.spike(1024)
        during = cuda.memory.is_recording
    # then
    assert during
    assert not cuda.memory.is_recording
    (snapshot,) = _snapshots(tmp_path)
    book = snapshot.with_name(snapshot.name.replace(".snapshot.pickle", ".addresses.npz"))
    assert recording.files == [snapshot, book]
    actions = [entry["action"] for entry in pickle.loads(snapshot.read_bytes())["device_traces"][0]]
    assert actions == ["alloc", "free_completed"]


def test_record_writes_and_is_off_after_an_exception_too(cuda: FakeCuda, tmp_path: Path) -> None:
    # given
    def lose_the_key() -> None:
        cuda.spike(1024)
        raise KeyError

    # when
    with pytest.raises(KeyError), _record(tmp_path):
        lose_the_key()
    # then
    assert not cuda.memory.is_recording
    assert len(_snapshots(tmp_path)) == 1


def test_record_is_off_when_the_snapshot_fails(
    cuda: FakeCuda, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # given
    cuda.memory.failure = RuntimeError("CUDA error")
    # when
    with _record(tmp_path) as recording:
        cuda.spike(1024)
    # then
    assert not cuda.memory.is_recording
    assert recording.files == []
    assert "record is off: RuntimeError: CUDA error" in caplog.text


def test_record_reports_an_overflow(cuda: FakeCuda, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # when
    with _record(tmp_path, max_entries=4):
        for _ in range(10):
            cuda.spike(1024)
    # then
    assert "the ring buffer is full" in caplog.text
    assert "max_entries" in caplog.text


def test_a_record_inside_a_record_leaves_recording_to_the_outer(cuda: FakeCuda, tmp_path: Path) -> None:
    # when
    with _record(tmp_path):
        with _record(tmp_path):
            cuda.spike(1024)
        inside = cuda.memory.is_recording
    # then
    assert inside
    assert not cuda.memory.is_recording
    assert [path.parent.name for path in sorted(tmp_path.glob("*/*.snapshot.pickle"))] == ["run", "run_2"]


def test_record_notes_gradients_that_only_the_optimizers_step_sees(cuda: FakeCuda, tmp_path: Path) -> None:
    # given a training that clears its gradients before the block ends, and an optimizer that nobody gave
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    # when it is recorded
    with _record(tmp_path, max_entries=50) as recording:
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    # then the book holds them all the same
    book = tbmem.AddressBook.load(recording.files[1])
    assert [note.category.name for note in book.notes()].count("GRADIENT") == 2


def test_phases_and_modules_of_a_training_step(tmp_path: Path) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    # given two layers, and a step that names its phases
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 16))
    optimizer = torch.optim.Adam(model.parameters())
    values = torch.randn(32, 64)
    with tbmem.record("step", logdir=str(tmp_path), model=model, optimizer=optimizer) as recording:
        with recording.phase("forward"):
            loss = model(values).sum()
        with recording.phase("backward"):
            loss.backward()
        with recording.phase("update"):
            optimizer.step()
        with pytest.raises(tbmem.UsageError, match="has not ended"):
            _ = recording.phases

    # then each phase has what it added, by category
    weights = sum(parameter.nbytes for parameter in model.parameters())
    forward, backward, update = recording.phases
    assert [phase.name for phase in recording.phases] == ["forward", "backward", "update"]
    assert forward.by_category["ACTIVATION"] == 32 * 256 * 4
    assert backward.by_category["GRADIENT"] == weights
    assert update.by_category["OPTIMIZER_STATE"] == 2 * weights + 4 * 4
    assert update.peak == recording.analysis.main.peak.bytes
    # and each module what it allocates in forward and keeps for backward
    whole, first, second = recording.modules
    assert [module.name for module in recording.modules] == ["", "0", "1"]
    assert (first.kind, first.allocated, second.saved) == ("Linear", 32 * 256 * 4, 32 * 256 * 4)
    assert whole.allocated == first.allocated + second.allocated
    # and it can be printed and written
    assert repr(recording).startswith(f"Recording in {tmp_path / 'step'}: peak ")
    assert [row["name"] for row in recording.to_dict()["phases"]] == ["forward", "backward", "update"]


def test_inference_has_phases_and_modules_as_well(tmp_path: Path) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    model, values = torch.nn.Linear(64, 256), torch.randn(32, 64)

    with (
        tbmem.record(logdir=str(tmp_path), model=model) as recording,
        torch.inference_mode(),
        recording.phase("once"),
    ):
        model(values)

    (phase,) = recording.phases
    assert (phase.allocated, phase.net) == (32 * 256 * 4, 0)
    assert [(module.allocated, module.saved) for module in recording.modules] == [(32 * 256 * 4, 0)]


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(tbmem.UsageError, match=r"record: model is of type str; give a torch.nn.Module"),
        tbmem.record(model="net", logdir=str(tmp_path)),  # type: ignore[arg-type]
    ):
        pass
    assert not list(tmp_path.iterdir())


def test_what_recorded_nothing_says_so(tmp_path: Path) -> None:
    if torch.cuda.is_available() or torch.xpu.is_available():
        pytest.skip("this machine's device keeps memory history")
    with (
        tbmem.record("outer", logdir=str(tmp_path)) as outer,
        tbmem.record("inner", logdir=str(tmp_path)) as inner,
        inner.phase("mine"),
    ):
        torch.zeros(4)

    assert outer.analysis.main.peak.bytes >= 16
    assert repr(inner).endswith("nothing was recorded")
    with pytest.raises(tbmem.UsageError, match="nothing was recorded"):
        _ = inner.phases


def test_phases_of_a_snapshot_are_joined_by_time(cuda: FakeCuda, tmp_path: Path) -> None:
    # given a recording of a device whose two events the history has at its beginning
    with _record(tmp_path) as recording, recording.phase("all"):
        cuda.spike(1024)

    # then the phase is there, with the level of the device
    (phase,) = recording.phases
    assert (phase.name, phase.device, phase.calls) == ("all", "cuda:0", 1)


def test_a_redacted_block_names_neither_host_nor_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # given a host, and a home folder with the log folder
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("socket.gethostname", lambda: "node7-in-acme")

    # when two blocks of a name are recorded
    for _ in range(2):
        with tbmem.record("block", logdir=str(tmp_path / "runs"), redact=True) as recording:
            torch.ones(1000).sum()

    # then file names, traces and lines hold neither
    trace = next(file for file in recording.files if file.name.endswith(".gz"))
    assert trace.name.startswith("host_rank0.")
    text = gzip.decompress(trace.read_bytes()).decode()
    for word in ("node7", str(tmp_path)):
        assert word not in text
        assert word not in caplog.text
    assert "~/runs/block" in caplog.text
