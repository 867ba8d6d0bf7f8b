"""The Keras adapter, in trainings of the real framework on its torch backend."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("keras", reason="keras is not installed: pip install --group frameworks")

import keras

from tbmem.errors import UsageError
from tbmem.integrations.keras import KerasMemory
from tbmem.model.finding import FindingKind
from tbmem.model.monitor_log import MonitorLog
from tests.integrations.conftest import find_leak

OnlyLog = Callable[[Path], MonitorLog]


def _model(*, is_scaled: bool = False, **options: Any) -> Any:
    model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01, **options)
    model.compile(optimizer=keras.optimizers.LossScaleOptimizer(optimizer) if is_scaled else optimizer, loss="mse")
    return model


def _fit(model: Any, memory: KerasMemory, batches: int = 12, **others: Any) -> Any:
    inputs, targets = torch.randn(2 * batches, 8), torch.randn(2 * batches, 1)
    return model.fit(inputs, targets, batch_size=2, verbose=0, callbacks=[memory, *others.pop("more", [])], **others)


def _sections(folder: Path, **others: Any) -> dict[str, Any]:
    return {"run": {"logdir": str(folder), "name": "run"}, **others}


def test_a_training(tmp_path: Path, only_log: OnlyLog) -> None:
    memory = KerasMemory(**_sections(tmp_path))

    _fit(_model(), memory)

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 12
    assert len(list(tmp_path.glob("run/*.pt.trace.json.gz"))) == 1
    assert only_log(tmp_path).end is not None


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    memory = KerasMemory(**_sections(tmp_path, profiling={"enabled": False}))

    _fit(_model(gradient_accumulation_steps=4), memory)

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 3


@pytest.mark.parametrize("is_the_same", [True, False], ids=["the same", "another one"])
def test_a_second_callback_changes_nothing(is_the_same: bool, tmp_path: Path, only_log: OnlyLog) -> None:
    settings = _sections(tmp_path, profiling={"enabled": False})
    memory = KerasMemory(**settings)

    _fit(_model(gradient_accumulation_steps=2), memory, more=[memory if is_the_same else KerasMemory(**settings)])

    assert only_log(tmp_path).rows[-1].sample.step == 6


def test_without_a_with_block_another_training_closes_the_one_that_failed(tmp_path: Path) -> None:
    # given a training that has failed inside of a window
    class Fails(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                raise RuntimeError("the user's own")

    failed = KerasMemory(**_sections(tmp_path / "first"))
    with pytest.raises(RuntimeError, match="the user's own"):
        _fit(_model(), failed, more=[Fails()])

    # when another callback's runs to its end, twice, with validation
    memory = KerasMemory(**_sections(tmp_path / "second"))
    _fit(model := _model(), memory, epochs=2, validation_split=0.5)
    assert memory.session.summary is not None
    assert (memory.session.summary.steps, len(memory.session.summary.traces)) == (12, 1)
    _fit(model, memory)

    # then nothing stays on
    assert not failed.session.is_active
    assert memory.session.summary.steps == 12


def test_a_leak_is_in_the_history(tmp_path: Path) -> None:
    memory = KerasMemory(**_sections(tmp_path, profiling={"enabled": False}))

    class Leak(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                find_leak(memory.session)

    history = _fit(_model(), memory, more=[Leak()])

    assert history.history["tbmem/leak_bytes_per_step"][0] == 4 << 20


def test_an_exception_leaves_nothing_on_and_out_of_memory_is_told(tmp_path: Path, only_log: OnlyLog) -> None:
    class Fails(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                torch.empty(1 << 50, dtype=torch.uint8)

    with (
        pytest.raises(RuntimeError, match="you tried to allocate"),
        KerasMemory(**_sections(tmp_path)) as memory,
    ):
        _fit(_model(), memory, more=[Fails()])

    assert not memory.session.is_active
    (finding,) = [each for each in only_log(tmp_path).findings if each.kind is FindingKind.OOM]
    assert finding.first_step == 5


@pytest.mark.parametrize(
    ("options", "batches"),
    [({}, 5), ({"gradient_accumulation_steps": 2}, 10), ({"gradient_accumulation_steps": 2, "is_scaled": True}, 10)],
    ids=["plain", "accumulated", "in mixed precision"],
)
def test_a_saved_model_knows_nothing_of_it_and_goes_on_counting(
    options: dict[str, Any], batches: int, tmp_path: Path, only_log: OnlyLog
) -> None:
    # given a model that was saved after five steps
    model = _model(**options)
    _fit(model, KerasMemory(**_sections(tmp_path / "first", profiling={"enabled": False})), batches=batches)
    model.save(tmp_path / "model.keras")

    # when it is loaded and trained on
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    _fit(loaded, KerasMemory(**_sections(tmp_path / "second", profiling={"enabled": False})), batches=batches)

    # then its steps follow
    log = only_log(tmp_path / "second")
    assert [log.rows[0].first_step, log.rows[-1].sample.step] == [6, 10]


def test_another_backend_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")

    with pytest.raises(UsageError, match="KERAS_BACKEND=torch"):
        KerasMemory()
