"""A cache of cosines is made anew, larger, whenever a longer sequence comes: ever more seldom, then never.

source: facebookresearch/xformers#728, lucidrains/rotary-embedding-torch#15
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "facebookresearch/xformers#728, lucidrains/rotary-embedding-torch#15"
torch.manual_seed(0)
torch.set_num_threads(1)


class Rotary:
    def __init__(self, width):
        self.frequencies = 10_000 ** (-torch.arange(0, width, 2) / width)
        self.cached = torch.empty(0, width)

    def __call__(self, length):
        if length > len(self.cached):
            angles = torch.outer(torch.arange(length), self.frequencies)
            self.cached = torch.cat((angles.cos(), angles.sin()), dim=1)
        return self.cached[:length]


def make():
    rng = random.Random(11)
    rotary = Rotary(128)

    def step(i):
        length = int(1_500 * rng.betavariate(2, 4)) + 50
        torch.randn(length, 128).mul_(rotary(length)).sum()

    return step
