"""The Lightning adapter, in trainings of the real framework under both of its names."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("lightning.pytorch", reason="lightning is not installed: pip install --group frameworks")

from tbmem.integrations.lightning import LightningMemory
from tbmem.model.monitor_log import MonitorLog, read_monitor_log
from tests.integrations.conftest import find_leak

QUIET = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu", "devices": 1}
OnlyLog = Callable[[Path], MonitorLog]


def _model(package: str = "lightning.pytorch", **parts: Any) -> Any:
    lightning = import_module(package)

    class Small(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> torch.Tensor:
            if parts.get("fails_at") == index:
                raise RuntimeError("the user's own")
            if parts.get("leaks_at") == index:
                find_leak(parts["memory"].session)
            return self.layer(batch).sum()

        def validation_step(self, batch: torch.Tensor, index: int) -> None:
            self.layer(batch)

        test_step = predict_step = validation_step

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Small()


def _loader(batches: int = 12) -> Any:
    return torch.utils.data.DataLoader(torch.randn(2 * batches, 8), batch_size=2)


def _trainer(folder: Path, memory: Any, package: str = "lightning.pytorch", **others: Any) -> Any:
    loggers = import_module(f"{package}.loggers")
    memories = memory if isinstance(memory, list) else [memory]
    settings = {"max_epochs": 1, "logger": loggers.CSVLogger(folder), "enable_checkpointing": False, **QUIET, **others}
    return import_module(package).Trainer(callbacks=memories, default_root_dir=folder, **settings)


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_training_under_either_name(package: str, tmp_path: Path, only_log: OnlyLog) -> None:
    # given a trainer with a log folder of its own and validation in the middle
    pytest.importorskip(package)
    memory = LightningMemory()
    trainer = _trainer(tmp_path, memory, package, val_check_interval=4)

    # when it trains
    trainer.fit(_model(package), _loader(), _loader(3))

    # then each optimizer step was a step, in the trainer's folder, with the traces of the schedule
    folder = Path(trainer.logger.log_dir) / "tbmem"
    assert memory.session.summary is not None
    assert memory.session.summary.steps == trainer.global_step == 12
    assert len(list(folder.glob("*.pt.trace.json.gz"))) == 1
    log = only_log(tmp_path)
    assert log.end is not None
    assert log.rows[-1].sample.step == 12


def test_accumulated_batches_are_one_step(tmp_path: Path) -> None:
    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory, accumulate_grad_batches=4)

    trainer.fit(_model(), _loader(18))

    assert memory.session.summary is not None
    assert memory.session.summary.steps == trainer.global_step == 5


def test_two_optimizers_by_hand_are_one_step_per_batch(tmp_path: Path, only_log: OnlyLog) -> None:
    # given a module that steps two optimizers itself
    lightning = import_module("lightning.pytorch")

    class Two(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.first, self.second = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)

        def training_step(self, batch: torch.Tensor, index: int) -> None:
            for optimizer, layer in zip(self.optimizers(), (self.first, self.second), strict=True):
                optimizer.zero_grad()
                self.manual_backward(layer(batch).sum())
                optimizer.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in (self.first, self.second)]

    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory)

    # when it trains
    trainer.fit(Two(), _loader(6))

    # then a batch was a step
    assert trainer.global_step == 12
    assert memory.session.summary is not None
    assert memory.session.summary.steps == 6

    # and a training that goes on from there counts batches on
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, again, max_epochs=2)
    trainer.fit(Two(), _loader(6), ckpt_path=tmp_path / "last.ckpt")
    assert again.session.summary is not None
    log = only_log(Path(again.session.summary.folder))
    assert [log.rows[0].first_step, log.rows[-1].sample.step] == [7, 12]


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_a_stage_alone_is_a_run_of_its_own(stage: str, tmp_path: Path) -> None:
    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory)

    getattr(trainer, stage)(_model(), _loader(7))

    assert memory.session.summary is not None
    assert memory.session.summary.steps == 7
    assert memory.session.summary.folder.endswith(f"tbmem-{stage}")


@pytest.mark.parametrize("is_the_same", [True, False], ids=["the same", "another one"])
def test_a_second_callback_changes_nothing(is_the_same: bool, tmp_path: Path) -> None:
    memory = LightningMemory()
    trainer = _trainer(tmp_path, [memory, memory if is_the_same else LightningMemory()])

    trainer.fit(model := _model(), _loader())
    assert memory.session.summary is not None
    assert (memory.session.summary.steps, len(memory.session.summary.traces)) == (12, 1)

    trainer.test(model, _loader(7))
    assert memory.session.summary.steps == 7


def test_one_trainer_for_everything(tmp_path: Path) -> None:
    # given a trainer that fits, tests, and fits on
    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory)
    model = _model()

    trainer.fit(model, _loader(), _loader(3))
    trainer.test(model, _loader(5))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(model, _loader(), _loader(3))

    # then each is in its place, and the second training goes on counting in a folder of its own
    folder = Path(trainer.logger.log_dir)
    logs = {path.parts[-4]: read_monitor_log(path) for path in folder.rglob("monitor.jsonl")}
    assert {name: log.rows[-1].sample.step for name, log in logs.items()} == {
        "tbmem": 12,
        "tbmem_2": 24,
        "tbmem-test": 5,
    }


def test_a_leak_is_told_to_the_trainers_logger(tmp_path: Path) -> None:
    # given a leak that is found in step 4, and a logger for text
    from lightning.pytorch.loggers import TensorBoardLogger

    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory, logger=TensorBoardLogger(tmp_path), log_every_n_steps=10)

    # when it trains
    trainer.fit(_model(leaks_at=3, memory=memory), _loader())

    # then the trainer's own event file has the finding as a number and as a sentence
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(trainer.logger.log_dir).Reload()
    (point,) = events.Scalars("tbmem/leak_bytes_per_step")
    assert (point.step, point.value) == (4, 4 << 20)
    assert "tbmem/leak/text_summary" in events.Tags()["tensors"]


def test_an_exception_leaves_nothing_on(tmp_path: Path, only_log: OnlyLog) -> None:
    # given a training that fails inside of a window
    memory = LightningMemory()
    trainer = _trainer(tmp_path, memory)

    # when it does
    with pytest.raises(RuntimeError, match="the user's own"):
        trainer.fit(_model(fails_at=4), _loader())

    # then the run was closed, and tells the cause
    assert not memory.session.is_active
    assert memory.session.summary is not None
    assert memory.session.summary.exception == "RuntimeError"
    assert only_log(tmp_path).end is not None


def test_a_checkpoint_knows_nothing_of_it_and_resumes(
    tmp_path: Path, only_log: OnlyLog, caplog: pytest.LogCaptureFixture
) -> None:
    # given a checkpoint that was written with the adapter
    memory = LightningMemory(profiling={"enabled": False})
    trainer = _trainer(tmp_path, memory)
    model = _model()
    trainer.fit(model, _loader(5))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert not any("LightningMemory" in key for key in saved["callbacks"])

    # when another training goes on from there
    again = LightningMemory(profiling={"wait": 9})
    trainer = _trainer(tmp_path, again, max_epochs=2)
    with caplog.at_level("INFO", logger="tbmem"):
        trainer.fit(_model(), _loader(5), ckpt_path=tmp_path / "last.ckpt")

    # then its steps go on counting where the trainer's do, and the log says so
    assert trainer.global_step == 10
    assert again.session.summary is not None
    assert again.session.summary.steps == 5
    text = (Path(again.session.summary.folder) / "plugins/tbmem/monitor.jsonl").read_text()
    assert '"resumed_after_step":5' in text
    said = [record.getMessage() for record in caplog.records]
    assert [line for line in said if line.endswith("wait")] == ["profiler · steps 6-14 wait"]
    log = only_log(Path(again.session.summary.folder))
    assert [log.rows[0].first_step, log.rows[-1].sample.step] == [6, 10]
