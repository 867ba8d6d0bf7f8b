"""Meta-learning: each task gets an adapted copy of the net and an optimizer of its own, kept by the task's name.

source: metaopt/torchopt#113, facebookresearch/higher#6
"""

import copy

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'self.inner[f"task{number}"] = (fast, optimizer)'
SOURCE = "metaopt/torchopt#113, facebookresearch/higher#6"
torch.manual_seed(0)
torch.set_num_threads(1)


class MetaLearner:
    def __init__(self):
        self.net = torch.nn.Linear(48, 24)
        self.inner = {}

    def adapt(self, number):
        fast = copy.deepcopy(self.net)
        optimizer = torch.optim.Adam(fast.parameters(), 1e-2)
        fast(torch.randn(16, 48)).square().mean().backward()
        optimizer.step()
        self.inner[f"task{number}"] = (fast, optimizer)
        return fast


def make():
    learner = MetaLearner()

    def step(i):
        learner.adapt(i)

    return step
