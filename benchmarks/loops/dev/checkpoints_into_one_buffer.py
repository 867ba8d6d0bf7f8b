"""The in-memory checkpoint is written to the same BytesIO each fifth step without going back to its start.

source: own case (torch.save into a BytesIO), pattern of lucidrains/ema-pytorch#35
no tensor: bytes, enlarged in jumps
"""

import io

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "torch.save(model.state_dict(), buffer)"
SOURCE = "own case (torch.save into a BytesIO), pattern of lucidrains/ema-pytorch#35"
ONSET = 4
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(100, 150), torch.nn.ReLU(), torch.nn.Linear(150, 100))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    buffer = io.BytesIO()

    def step(i):
        model(torch.randn(16, 100)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 5 == 4:
            torch.save(model.state_dict(), buffer)

    return step
