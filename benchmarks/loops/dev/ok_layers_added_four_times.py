"""A network grows by one block at steps 12, 24, 36 and 48, with an optimizer that learns of each.

source: nashory/pggan-pytorch#16
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "nashory/pggan-pytorch#16"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    blocks = torch.nn.ModuleList([torch.nn.Linear(256, 256)])
    optimizer = torch.optim.Adam(blocks.parameters(), 1e-4)

    def step(i):
        if i in (12, 24, 36, 48):
            blocks.append(torch.nn.Linear(256, 256))
            optimizer.add_param_group({"params": blocks[-1].parameters()})
        x = torch.randn(16, 256)
        for block in blocks:
            x = x + block(x).tanh()
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()

    return step
