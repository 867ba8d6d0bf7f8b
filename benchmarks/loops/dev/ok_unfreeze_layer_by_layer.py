"""Gradual unfreezing: every 14 steps one more layer is trained, from the top down, until all five are.

source: speediedan/finetuning-scheduler#30 (scheduled unfreezing), own case
a staircase of five steps
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "speediedan/finetuning-scheduler#30 (scheduled unfreezing), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    layers = torch.nn.ModuleList(torch.nn.Linear(300, 300) for _ in range(5))
    layers.requires_grad_(False)
    layers[4].requires_grad_(True)
    optimizer = torch.optim.AdamW(layers.parameters(), 1e-4)

    def step(i):
        if i % 14 == 13 and i // 14 < 4:
            layers[3 - i // 14].requires_grad_(True)
        x = torch.randn(16, 300)
        for layer in layers:
            x = layer(x).relu()
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()

    return step
