"""Predictions and targets of 35 steps; at the epoch's end two new lists take the place of the old ones.

source: Lightning-AI/torchmetrics#1949 (the right way), own case
"""

import numpy as np
import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "Lightning-AI/torchmetrics#1949 (the right way), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Epoch:
    def __init__(self):
        self.start()

    def start(self):
        self.predictions, self.targets = [], []

    def end(self):
        score = np.corrcoef(np.concatenate(self.predictions).ravel(), np.concatenate(self.targets).ravel())[0, 1]
        self.start()
        return score


def make():
    model = torch.nn.Linear(20, 60)
    epoch = Epoch()

    def step(i):
        x, y = torch.randn(100, 20), torch.randn(100, 60)
        out = model(x)
        (out - y).square().mean().backward()
        model.zero_grad()
        epoch.predictions.append(out.detach().numpy())
        epoch.targets.append(y.numpy())
        if i % 35 == 34:
            epoch.end()

    return step
