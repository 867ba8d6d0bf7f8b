"""Gradients are accumulated over two micro-steps and set to None after the optimizer's step.

source: own case (gradient accumulation)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case (gradient accumulation)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(300, 500), torch.nn.ReLU(), torch.nn.Linear(500, 300))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)

    def step(i):
        (model(torch.randn(4, 300)).square().mean() / 2).backward()
        if i % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()

    return step
