"""Gradient checkpointing was switched off for one batch, at step 70: all activations are held at once, within the step.

source: pytorch/pytorch#115255 (checkpointing that is not in force)
60 MiB for some ten milliseconds
"""

import torch

LABEL = "spike"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "pytorch/pytorch#115255 (checkpointing that is not in force)"
ONSET = 70
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(6))

    def step(i):
        x = torch.randn(24_000 if i == 70 else 400, 64)
        for layer in layers:
            x = layer(x).tanh()
        x.mean().backward()
        layers.zero_grad()

    return step
