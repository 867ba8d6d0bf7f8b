"""tbmem.record around any code."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import tbmem


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
