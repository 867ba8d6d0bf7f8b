"""LBFGS keeps the last 20 directions and steps: the history fills, then the oldest one goes.

source: torch.optim.LBFGS (history_size), own case
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "torch.optim.LBFGS (history_size), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    x = torch.nn.Parameter(torch.randn(15_000))
    scale = torch.logspace(0, 2, 15_000)
    optimizer = torch.optim.LBFGS([x], lr=0.05, max_iter=1, history_size=20)

    def closure():
        optimizer.zero_grad()
        loss = (scale * x.square()).sum() + x.cos().sum() + 0.01 * torch.randn(()) * x.sum()
        loss.backward()
        return loss

    def step(i):
        optimizer.step(closure)

    return step
