"""The right way to keep losses: loss.item() and a few more floats in a record per step, some hundred bytes.

source: BatsResearch/labelmodels#4, MultimediaTechLab/YOLO#83 (the right way)
grows for ever, by nothing that would matter in a million steps
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "BatsResearch/labelmodels#4, MultimediaTechLab/YOLO#83 (the right way)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    history = []

    def step(i):
        x = torch.randn(128, 32)
        loss = (model(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append((i, loss.item()))

    return step
