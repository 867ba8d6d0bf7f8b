"""Every tenth step prunes by one more parametrization of the weight, instead of changing the first one's mask.

source: own case
"""

import torch
from torch.nn.utils import parametrize

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'parametrize.register_parametrization(layer, "weight", Mask(layer.weight.detach()))'
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Mask(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.register_buffer("mask", (weight.abs() > 1e-3).float())

    def forward(self, weight):
        return weight * self.mask


def make():
    layer = torch.nn.Linear(128, 64)

    def step(i):
        if i % 10 == 0:
            parametrize.register_parametrization(layer, "weight", Mask(layer.weight.detach()))
        layer(torch.randn(16, 128)).square().mean().backward()
        layer.zero_grad()

    return step
