"""Sequences get longer by three tokens a step for 150 steps; the last output is kept until the next one.

source: own case
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    layer = torch.nn.Linear(32, 64)
    kept = None

    def step(i):
        nonlocal kept
        kept = layer(torch.randn(8, 32 + 3 * min(i, 150), 32))
        kept.square().mean().backward()
        layer.zero_grad()

    return step
