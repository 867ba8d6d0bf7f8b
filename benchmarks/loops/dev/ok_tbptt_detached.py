"""Truncated back-propagation done right: the state goes on, its graph is cut every eighth step.

source: dpressel/dliss-tutorial#1, yunjey/pytorch-tutorial#90
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "dpressel/dliss-tutorial#1, yunjey/pytorch-tutorial#90"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    cell = torch.nn.GRUCell(32, 128)
    h = torch.zeros(64, 128)
    loss = torch.zeros(())

    def step(i):
        nonlocal h, loss
        h = cell(torch.randn(64, 32), h)
        loss = loss + h.square().mean()
        if i % 8 == 7:
            loss.backward()
            cell.zero_grad()
            h, loss = h.detach(), torch.zeros(())

    return step
