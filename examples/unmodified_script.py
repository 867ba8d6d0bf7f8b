"""A training script without tbmem: `tbmem run -- examples/unmodified_script.py --steps 30`."""

from __future__ import annotations

import argparse

import torch


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    given = arguments.parse_args()

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(given.steps):
        inputs, targets = torch.randn(128, 64), torch.randint(10, (128,))
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
