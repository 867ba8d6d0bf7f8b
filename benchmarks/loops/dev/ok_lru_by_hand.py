"""A hand-written cache: an OrderedDict from which the oldest entry goes once there are more than 90.

source: own case
"""

import collections

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Cache:
    def __init__(self, size):
        self.size = size
        self.entries = collections.OrderedDict()

    def get(self, key):
        if key in self.entries:
            self.entries.move_to_end(key)
        else:
            self.entries[key] = torch.randn(32, 32)
            if len(self.entries) > self.size:
                self.entries.popitem(last=False)
        return self.entries[key]


def make():
    model = torch.nn.Linear(32, 32)
    cache = Cache(90)

    def step(i):
        model(cache.get(i)).square().mean().backward()
        model.zero_grad()

    return step
