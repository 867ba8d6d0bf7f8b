"""Cases are predicted, and measured by counters and a recording; memory that runs out is a cell, not the end."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbmem.errors import UsageError
from tbmem.estimator import sweep as module
from tbmem.estimator.sweep import NullObserver, _on_cuda, model_facts, run_cell, sweep, usable_precision
from tbmem.estimator.workload.decoder import SHAPES, DecoderShape
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import make_workload
from tbmem.model.sweep import MemoryPeak, Status, SweepCase, SweepCell
from tbmem.sources.recording import read_recording
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tests.analysis.allocator.recording import busy_recorder
from tests.analysis.allocator.test_what_if import as_snapshot

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
    *_, result = sweep(cases, tmp_path)

    assert [cell.status for cell in result.cells] == [Status.MEASURED, Status.OUT_OF_MEMORY, Status.MEASURED]
    assert all(cell.predicted == MemoryPeak(allocated=10) for cell in result.cells)
    assert result.cells[2].file == "small_ctx256_training.tbmem.npz"


def test_what_is_predicted_to_be_too_much_for_this_machine_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module, "_predictions", lambda cases, gpu: {case: MemoryPeak(allocated=1 << 60) for case in cases}
    )

    (result,) = sweep([SweepCase(size="xl", context=64)], tmp_path)
    (cell,) = result.cells

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

    (result,) = sweep(cases, tmp_path)
    (cell,) = result.cells

    assert (cell.status, cell.predicted, cell.note) == (Status.MEASURED, None, "no prediction: not now")


def test_a_model_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there are gpt2"):
        list(sweep([SweepCase(size="huge", context=64)], tmp_path))


@pytest.mark.parametrize(
    ("size", "count"),
    [("gpt2", 124_439_808), ("small", 128_625_408), ("llama3-8b", 8_030_261_248), ("mixtral-8x7b", 46_702_792_704)],
)
def test_numbers_of_parameters_are_the_published_ones(size: str, count: int) -> None:
    assert model_facts(size).parameters == count


TINY = {"layers": 2, "width": 64, "heads": 2, "inner": 128, "vocabulary": 512, "context": 64}


def test_bf16_falls_back_to_fp16_with_a_sentence() -> None:
    mixed = replace(CASE, precision="bf16")

    assert usable_precision(mixed, bfloat16=True) == (mixed, "")
    usable, sentence = usable_precision(mixed, bfloat16=False)
    assert usable.precision == "fp16"
    assert sentence == "This device has no bf16: fp16 is used instead."


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "tiny", DecoderShape(**TINY))


class _Cuda(types.SimpleNamespace):
    """torch.cuda of a machine with a GPU, as far as a cell asks it."""

    def __init__(self, snapshot: dict[str, Any]) -> None:
        calls: list[str] = []
        memory = types.SimpleNamespace(
            _record_memory_history=lambda **given: calls.append(f"history {given['enabled']}"),
            _snapshot=lambda: snapshot,
        )
        super().__init__(
            calls=calls,
            memory=memory,
            synchronize=lambda: None,
            reset_peak_memory_stats=lambda: calls.append("reset"),
            max_memory_allocated=lambda: 5_000,
            max_memory_reserved=lambda: 6_000,
        )


@pytest.mark.usefixtures("tiny")
def test_on_cuda_the_counters_and_a_snapshot_are_read(tmp_path: Path) -> None:
    from tbmem.analysis.allocator.segments import SimpleDevice
    from tbmem.analysis.allocator.settings import AllocatorSettings

    recorder = busy_recorder(AllocatorSettings(), SimpleDevice(1 << 36), seed=1, operations=50)
    cuda = _Cuda(as_snapshot(recorder, first=0))
    training = Training(CASE.job(), make_workload(CASE.job()), NullObserver())

    moment, seconds = _on_cuda(training, CASE, tmp_path / "x_snapshot.pickle", cuda)

    assert cuda.calls == ["reset", "history all", "history None"]
    assert MemoryHistory._owner is None
    assert (moment.allocated, moment.reserved) == (5_000, 6_000)
    assert seconds > 0
    assert moment.largest
    assert read_recording(tmp_path / "x_snapshot.pickle").timeline.source == "snapshot"


def test_the_law_an_estimate_of_its_own_model_is_what_it_measures(tmp_path: Path) -> None:
    cases = [SweepCase(size="small", context=32, batch=1, what=what) for what in ("forward", "training")]

    *_, result = sweep(cases, tmp_path)

    for cell in result.cells:
        assert cell.status is Status.MEASURED, cell.note
        assert cell.measured is not None
        assert cell.predicted is not None
        # torch.profiler counted what really ran; the estimate saw shapes only
        assert cell.predicted.allocated == pytest.approx(cell.measured.allocated, abs=64)
        assert cell.predicted.activations == cell.measured.activations
        assert (
            cell.predicted.phase == cell.measured.phase == ("forward" if cell.case.what == "forward" else "optimizer")
        )
        timeline = read_recording(tmp_path / cell.file).timeline
        assert timeline.source == "count"
        assert timeline.peak(0).bytes == pytest.approx(cell.measured.allocated, abs=64)
    assert any(
        "decoder.py" in one.line for cell in result.cells for one in (cell.measured or MemoryPeak(allocated=0)).largest
    )


@pytest.mark.usefixtures("tiny")
def test_a_step_is_counted_by_category_after_others(tmp_path: Path) -> None:
    cell = run_cell(replace(CASE, precision="fp16"), tmp_path / "x.pickle")

    assert cell.measured is not None
    assert cell.measured.parts["optimizer_state"] == pytest.approx(2 * cell.measured.parts["parameter"], rel=0.01)
    assert read_recording(tmp_path / "x.pickle").timeline.source == "snapshot"
