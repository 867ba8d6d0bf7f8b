"""The callback in a plain training loop: everything tbmem does, in three lines."""

from __future__ import annotations

import argparse

import torch

from tbmem import MemoryCallback


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    arguments.add_argument("--config", default=None, help="a YAML file such as configs/deep.yaml")
    given = arguments.parse_args()

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())

    with MemoryCallback(given.config, run={"logdir": given.logdir}) as memory:
        memory.watch(model, optimizer)  # optional: names in the address book
        for _ in range(given.steps):
            inputs, targets = torch.randn(128, 64), torch.randint(10, (128,))
            loss = torch.nn.functional.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            memory.step()


if __name__ == "__main__":
    main()
