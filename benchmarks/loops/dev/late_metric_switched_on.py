"""At step 120 a costly metric is switched on; it stores the pairs that it has seen and is reset nowhere.

source: Lightning-AI/torchmetrics#1160, Lightning-AI/pytorch-lightning#4556
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.pairs.append((prediction, target))"
SOURCE = "Lightning-AI/torchmetrics#1160, Lightning-AI/pytorch-lightning#4556"
ONSET = 120
torch.manual_seed(0)
torch.set_num_threads(1)


class RankCorrelation:
    def __init__(self):
        self.pairs = []

    def update(self, prediction, target):
        self.pairs.append((prediction, target))


def make():
    model = torch.nn.Linear(30, 50)
    metric = None

    def step(i):
        nonlocal metric
        x, y = torch.randn(150, 30), torch.randn(150, 50)
        (model(x) - y).square().mean().backward()
        model.zero_grad()
        if i == 120:
            metric = RankCorrelation()
        if metric is not None:
            with torch.no_grad():
                metric.update(model(x), y)

    return step
