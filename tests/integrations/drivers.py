"""Loops of the corpus, one after the other, under the plain callback, in Lightning, in the HF Trainer, or left alone.

python drivers.py plain|lightning|huggingface|script STEPS LOGDIR LOOP ...
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tbmem.sources.counters import malloc

Step = Callable[[int], None]


def _make(path: str) -> Step:
    spec = importlib.util.spec_from_file_location("corpus_loop", path)
    assert spec is not None
    assert spec.loader is not None
    loop = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loop)
    step: Step = loop.make()

    # how often malloc's counters are read shall not depend on what that takes on this machine
    malloc._SHARE_OF_A_STEP = malloc._CREDIT = 1.0

    def at_a_trainings_pace(number: int) -> None:
        step(number)
        time.sleep(0.005)

    return at_a_trainings_pace


def _plain(step: Step, steps: int, settings: dict[str, Any]) -> None:
    from tbmem import MemoryCallback

    with MemoryCallback(**settings) as memory:
        for number in range(steps):
            step(number)
            memory.step()


def _lightning(step: Step, steps: int, settings: dict[str, Any]) -> None:
    from lightning.pytorch import LightningModule, Trainer

    from tbmem.integrations.lightning import LightningMemory

    class Wrapped(LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def training_step(self, batch: Any, index: int) -> None:
            step(index)

        def configure_optimizers(self) -> None:
            return None

    trainer = Trainer(
        max_epochs=1,
        callbacks=[LightningMemory(**settings)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
    )
    trainer.fit(Wrapped(), torch.utils.data.DataLoader(torch.zeros(steps, 1)))


def _huggingface(step: Step, steps: int, settings: dict[str, Any]) -> None:
    from transformers import Trainer, TrainingArguments

    from tbmem.integrations.huggingface import HuggingFaceMemory

    class Wrapped(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.number = 0

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            step(self.number)
            self.number += 1
            return {"loss": (self.weight * x).sum()}

    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output, max_steps=steps, per_device_train_batch_size=1, report_to=[], use_cpu=True, save_strategy="no"
        )
        data = [{"x": torch.zeros(1)} for _ in range(steps)]
        memory = HuggingFaceMemory(**settings)
        Trainer(Wrapped(), arguments, train_dataset=data, callbacks=[memory]).train()


def _script(step: Step, steps: int, settings: dict[str, Any]) -> None:
    """For `tbmem run`: nothing of tbmem is called. Of a loop without an optimizer one beside it tells the steps."""
    beside = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    for number in range(steps):
        step(number)
        beside.step()  # counts for nothing where the loop's own has stepped first


if __name__ == "__main__":
    how, number, folder, *loops = sys.argv[1:]
    drivers = {"plain": _plain, "lightning": _lightning, "huggingface": _huggingface, "script": _script}
    for loop in loops:
        run = {"logdir": folder, "name": Path(loop).stem}
        drivers[how](_make(loop), int(number), {"run": run, "profiling": {"enabled": False}})
