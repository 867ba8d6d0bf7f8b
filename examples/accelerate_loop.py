"""A loop with Hugging Face Accelerate, gradients of two batches accumulated: everything tbmem does."""

from __future__ import annotations

import argparse

import torch
from accelerate import Accelerator

from tbmem.integrations.accelerate import AccelerateMemory


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=30)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))

    with AccelerateMemory(accelerator, run={"logdir": given.logdir}) as memory:
        for _ in range(2 * given.steps):
            with accelerator.accumulate(model):
                inputs = torch.randn(128, 64, device=accelerator.device)
                targets = torch.randint(10, (128,), device=accelerator.device)
                accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
            memory.step()  # counts where the optimizer has really stepped


if __name__ == "__main__":
    main()
