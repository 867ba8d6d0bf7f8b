"""Every 40 steps the next chunk of the data set, larger or smaller than the last, takes its place in memory.

source: DeNA/HandyRL#189 (size follows the data), own case
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "DeNA/HandyRL#189 (size follows the data), own case"
torch.manual_seed(0)
torch.set_num_threads(1)

ROWS = (20_000, 26_000, 18_000, 24_000)


def make():
    data = torch.randn(ROWS[0], 64)
    model = torch.nn.Linear(64, 16)

    def step(i):
        nonlocal data
        if i and i % 40 == 0:
            data = None
            data = torch.randn(ROWS[i // 40 % 4], 64)
        model(data[torch.randint(0, len(data), (64,))]).square().mean().backward()
        model.zero_grad()

    return step
