"""A branch of the model is used for the first time at step 45: its gradients and Adam's state appear at once.

source: apache/mxnet#10610 (memory grows with Adam, not with SGD)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "apache/mxnet#10610 (memory grows with Adam, not with SGD)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    trunk, auxiliary = torch.nn.Linear(64, 256), torch.nn.Linear(256, 1_000)
    optimizer = torch.optim.Adam([*trunk.parameters(), *auxiliary.parameters()], 1e-3)

    def step(i):
        hidden = trunk(torch.randn(32, 64))
        loss = hidden.square().mean()
        if i >= 45:
            loss = loss + auxiliary(hidden).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step
