"""A case is measured by counters and a recording, on CUDA and on the CPU."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tbmem.estimator.sweep import sweep
from tbmem.estimator.sweep_case import NullObserver, _on_cuda, usable_precision
from tbmem.estimator.workload.decoder import SHAPES, DecoderShape
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import make_workload
from tbmem.model.sweep import MemoryPeak, Status, SweepCase
from tbmem.sources.recording import read_recording
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tests.analysis.allocator.recording import busy_recorder
from tests.analysis.allocator.test_what_if import as_snapshot

CASE = SweepCase(size="tiny", context=16, batch=2, what="training")
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

    result = sweep(cases, tmp_path)

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
    from tbmem.estimator.sweep_case import run_cell

    cell = run_cell(replace(CASE, precision="fp16"), tmp_path / "x.pickle")

    assert cell.measured is not None
    assert cell.measured.parts["optimizer_state"] == pytest.approx(2 * cell.measured.parts["parameter"], rel=0.01)
    assert read_recording(tmp_path / "x.pickle").timeline.source == "snapshot"
