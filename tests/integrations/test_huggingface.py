"""The Hugging Face adapter, in trainings of the real Trainer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed: pip install --group frameworks")

import transformers

from tbmem.integrations.huggingface import HuggingFaceMemory
from tbmem.model.monitor_log import MonitorLog
from tests.integrations.conftest import find_leak

OnlyLog = Callable[[Path], MonitorLog]


class Small(torch.nn.Module):
    """A model as the Trainer wants it: keywords in, a loss out."""

    def __init__(self, *, fails_at: int = 0, leaks_in: HuggingFaceMemory | None = None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.calls = 0
        self.fails_at, self.leaks_in = fails_at, leaks_in

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        self.calls += 1
        if self.calls == self.fails_at:
            raise RuntimeError("the user's own")
        if self.leaks_in is not None and self.calls == 4:
            find_leak(self.leaks_in.session)
        return {"loss": self.layer(x).sum()}


def _trainer(folder: Path, memory: Any, model: torch.nn.Module, **settings: Any) -> transformers.Trainer:
    memories = memory if isinstance(memory, list) else [memory]
    values = {"max_steps": 12, "per_device_train_batch_size": 2, "save_strategy": "no", "disable_tqdm": True}
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), report_to=[], use_cpu=True, remove_unused_columns=False, **{**values, **settings}
    )
    data = [{"x": torch.randn(8)} for _ in range(64)]
    return transformers.Trainer(
        model=model, args=arguments, train_dataset=data, eval_dataset=data[:6], callbacks=memories
    )


def test_a_training(tmp_path: Path, only_log: OnlyLog) -> None:
    memory = HuggingFaceMemory()

    _trainer(tmp_path, memory, Small()).train()

    # then each optimizer step was a step, in the trainer's folder of runs, with the traces of the schedule
    assert memory.session.summary is not None
    assert memory.session.summary.steps == 12
    assert len(list(tmp_path.glob("runs/*/*.pt.trace.json.gz"))) == 1
    assert only_log(tmp_path / "runs").end is not None


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    memory = HuggingFaceMemory(profiling={"enabled": False})
    model = Small()

    _trainer(tmp_path, memory, model, gradient_accumulation_steps=4, max_steps=5).train()

    assert model.calls == 20
    assert memory.session.summary is not None
    assert memory.session.summary.steps == 5


def test_a_leak_is_in_the_trainers_history_and_the_state_round_trips(tmp_path: Path) -> None:
    # given a leak that is found in step 4
    memory = HuggingFaceMemory(profiling={"enabled": False})

    # when a training saves in the end
    trainer = _trainer(tmp_path, memory, Small(leaks_in=memory), save_strategy="steps", save_steps=12)
    trainer.train()

    # then the history has the finding, and the checkpoint's state can be read
    assert any("tbmem/leak" in entry for entry in trainer.state.log_history)
    assert any("tbmem/leak" in entry for entry in _state(tmp_path / "checkpoint-12")["log_history"])

    # and a training that goes on from there counts as the trainer does
    again = HuggingFaceMemory(profiling={"enabled": False}, run={"logdir": str(tmp_path / "again")})
    trainer = _trainer(tmp_path, again, Small(), max_steps=17)
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))
    assert trainer.state.global_step == 17
    assert again.session.summary is not None
    assert again.session.summary.steps == 5
    (path,) = (tmp_path / "again").rglob("monitor.jsonl")
    assert '"resumed_after_step":12' in path.read_text()


def _state(checkpoint: Path) -> dict[str, Any]:
    state: dict[str, Any] = json.loads((checkpoint / "trainer_state.json").read_text())
    return state


def test_an_exception_leaves_nothing_on(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the user's own"), HuggingFaceMemory() as memory:
        _trainer(tmp_path, memory, Small(fails_at=5)).train()

    assert not memory.session.is_active
    assert memory.session.summary is not None
    assert memory.session.summary.exception == "RuntimeError"


@pytest.mark.parametrize("is_the_same", [True, False], ids=["the same again", "another one"])
def test_without_a_with_block_the_next_training_closes_the_one_that_failed(is_the_same: bool, tmp_path: Path) -> None:
    # given a training that has failed inside of a window
    memory = HuggingFaceMemory()
    with pytest.raises(RuntimeError, match="the user's own"):
        _trainer(tmp_path, memory, Small(fails_at=5)).train()
    first = memory.session.memory

    # when another one runs to its end
    again = memory if is_the_same else HuggingFaceMemory()
    _trainer(tmp_path, again, Small()).train()

    # then both are closed, and the first's profiler was not in the way of the second's
    assert first is not None
    assert not first.is_active
    assert not again.session.is_active
    assert again.session.summary is not None
    assert len(again.session.summary.traces) == 1


@pytest.mark.parametrize("is_the_same", [True, False], ids=["the same", "another one"])
def test_a_second_callback_changes_nothing(is_the_same: bool, tmp_path: Path, only_log: OnlyLog) -> None:
    memory = HuggingFaceMemory(profiling={"enabled": False})
    second = memory if is_the_same else HuggingFaceMemory(profiling={"enabled": False})

    _trainer(tmp_path, [memory, second], Small()).train()

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 12
    assert only_log(tmp_path / "runs").rows[-1].sample.step == 12


def test_evaluation_in_the_middle_and_an_early_stop(tmp_path: Path, only_log: OnlyLog) -> None:
    # given a training that evaluates after every third step, and stops when the loss no longer rises
    memory = HuggingFaceMemory(profiling={"enabled": False})
    stop = transformers.EarlyStoppingCallback(1)
    best = {"metric_for_best_model": "loss", "greater_is_better": True, "load_best_model_at_end": True}
    every_third = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    trainer = _trainer(tmp_path, [memory, stop], Small(), max_steps=30, label_names=["x"], **best, **every_third)

    # when it trains, and predicts afterwards
    trainer.train()
    trainer.predict(trainer.train_dataset)

    # then each optimizer step was a step, and evaluating was none
    assert trainer.state.global_step < 30
    assert only_log(tmp_path / "runs").rows[-1].sample.step == trainer.state.global_step
