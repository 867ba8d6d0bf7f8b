"""An Ignite engine with one more handler: everything tbmem does."""

from __future__ import annotations

import argparse

import torch
from ignite.engine import create_supervised_trainer

from tbmem.integrations.ignite import IgniteMemory


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    trainer = create_supervised_trainer(model, optimizer, torch.nn.functional.cross_entropy)

    IgniteMemory(model, optimizer, run={"logdir": given.logdir}).attach(trainer)
    trainer.run([(torch.randn(128, 64), torch.randint(10, (128,))) for _ in range(given.steps)])


if __name__ == "__main__":
    main()
