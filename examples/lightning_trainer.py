"""Lightning's Trainer with one more callback: everything tbmem does."""

from __future__ import annotations

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer

from tbmem.integrations.lightning import LightningMemory


class Classifier(LightningModule):
    """A small network for random data."""

    def __init__(self) -> None:
        super().__init__()
        self.model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """The loss of one batch."""
        inputs, targets = batch
        return torch.nn.functional.cross_entropy(self.model(inputs), targets)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW with its defaults."""
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    data = torch.utils.data.TensorDataset(torch.randn(4096, 64), torch.randint(10, (4096,)))
    memory = LightningMemory(run={"logdir": given.logdir})  # without run.logdir: the trainer's own log folder
    trainer = Trainer(
        max_steps=given.steps, callbacks=[memory], logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Classifier(), torch.utils.data.DataLoader(data, batch_size=128))


if __name__ == "__main__":
    main()
