"""Cases are predicted and measured; memory that runs out is a cell, not the end."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch

from tbmem.errors import UsageError
from tbmem.estimator import sweep as module
from tbmem.estimator.sweep import model_facts, sweep
from tbmem.estimator.workload.decoder import SHAPES, Decoder
from tbmem.model.sweep import MemoryPeak, Status, SweepCase, SweepCell

CASE = SweepCase(size="tiny", context=16, batch=2, what="training")


@pytest.fixture
def predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_predictions", lambda cases, gpu: {case: MemoryPeak(allocated=10) for case in cases})


@pytest.mark.usefixtures("predicted")
def test_a_cell_that_runs_out_of_memory_does_not_end_the_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(case: SweepCase, path: Path) -> SweepCell:
        if case.context == 128:
            return SweepCell(case=case, status=Status.OUT_OF_MEMORY, note="no memory")
        return SweepCell(case=case, status=Status.MEASURED, measured=MemoryPeak(allocated=7), file=path.name)

    cases = [SweepCase(size="small", context=context, what="training") for context in (64, 128, 256)]
    monkeypatch.setattr(module, "measure_in_child", measure)
    result = sweep(cases, tmp_path)

    assert [cell.status for cell in result.cells] == [Status.MEASURED, Status.OUT_OF_MEMORY, Status.MEASURED]
    assert all(cell.predicted == MemoryPeak(allocated=10) for cell in result.cells)
    assert result.cells[2].file == "small_ctx256_training.tbmem.npz"


def test_what_is_predicted_to_be_too_much_for_this_machine_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "_predictions", lambda cases, gpu: {case: MemoryPeak(allocated=1 << 60) for case in cases}
    )

    (cell,) = sweep([SweepCase(size="xl", context=64)], tmp_path).cells

    assert cell.status is Status.OUT_OF_MEMORY
    assert "not run: 1048576 TiB are predicted" in cell.note


def test_a_process_that_the_system_ended_is_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: types.SimpleNamespace(returncode=-9))

    assert module.measure_in_child(CASE, tmp_path / "x.npz").status is Status.OUT_OF_MEMORY


def test_a_process_that_failed_says_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = types.SimpleNamespace(returncode=1, stderr=b"Traceback\n  File x\nImportError: no torch\n")
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: ended)

    cell = module.measure_in_child(CASE, tmp_path / "x.npz")

    assert cell.status is Status.FAILED
    assert cell.note == "the process ended with 1: ImportError: no torch"


def test_a_case_that_cannot_be_predicted_is_measured_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_predictions", lambda cases, gpu: {case: UsageError("not now") for case in cases})
    monkeypatch.setattr(module, "measure_in_child", lambda case, path: SweepCell(case=case, status=Status.MEASURED))
    cases = [SweepCase(size="small", context=64, precision="bf16")]

    (cell,) = sweep(cases, tmp_path).cells

    assert (cell.status, cell.predicted, cell.note) == (Status.MEASURED, None, "no prediction: not now")


def test_a_model_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are gpt2"):
        sweep([SweepCase(size="huge", context=64)], tmp_path)


@pytest.mark.parametrize("size", ["gpt2", "small", "llama3-8b", "mixtral-8x7b"])
def test_numbers_of_parameters_are_those_of_the_model(size: str) -> None:
    with torch.device("meta"):
        model = Decoder(SHAPES[size])

    assert model_facts(size).parameters == sum(parameter.numel() for parameter in model.parameters())
