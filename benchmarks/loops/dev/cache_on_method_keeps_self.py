"""functools.cache on a method: the class-level cache keeps every instance that was ever asked.

source: meta-pytorch/botorch#1650, pytorch/pytorch#147233
"""

import functools

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "def covariance(self):"
SOURCE = "meta-pytorch/botorch#1650, pytorch/pytorch#147233"
torch.manual_seed(0)
torch.set_num_threads(1)


class Posterior:
    def __init__(self, points):
        self.points = points

    @functools.cache
    def covariance(self):
        return self.points @ self.points.T


def make():
    def step(i):
        posterior = Posterior(torch.randn(80, 30))
        posterior.covariance().diagonal().mean()

    return step
