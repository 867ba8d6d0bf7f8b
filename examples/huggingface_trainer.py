"""Hugging Face's Trainer with one more callback: everything tbmem does."""

from __future__ import annotations

import argparse
import tempfile

import torch
from transformers import Trainer, TrainingArguments

from tbmem.integrations.huggingface import HuggingFaceMemory


class Classifier(torch.nn.Module):
    """A small network that returns its loss, as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of one batch."""
        return {"loss": torch.nn.functional.cross_entropy(self.model(inputs), labels)}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    data = [{"inputs": torch.randn(64), "labels": torch.randint(10, ())} for _ in range(512)]
    with (
        tempfile.TemporaryDirectory() as output,
        HuggingFaceMemory(run={"logdir": given.logdir}) as memory,  # without run.logdir: the trainer's own runs
    ):
        settings = TrainingArguments(
            output_dir=output, max_steps=given.steps, per_device_train_batch_size=128, report_to=[], disable_tqdm=True
        )
        Trainer(Classifier(), settings, train_dataset=data, callbacks=[memory]).train()


if __name__ == "__main__":
    main()
