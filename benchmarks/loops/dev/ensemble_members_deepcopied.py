"""Every fifth step a deep copy of the model joins the ensemble, and all members stay in memory.

source: raharth/PyMatch#23
"""

import copy

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.members.append(copy.deepcopy(model).eval())"
SOURCE = "raharth/PyMatch#23"
ONSET = 4
torch.manual_seed(0)
torch.set_num_threads(1)


class Ensemble:
    def __init__(self):
        self.members = []

    def snapshot(self, model):
        self.members.append(copy.deepcopy(model).eval())


def make():
    model = torch.nn.Sequential(torch.nn.Linear(64, 160), torch.nn.ReLU(), torch.nn.Linear(160, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    ensemble = Ensemble()

    def step(i):
        model(torch.randn(32, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 5 == 4:
            ensemble.snapshot(model)

    return step
