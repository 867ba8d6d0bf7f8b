"""A 'safe' data set wraps __getitem__ in a memoising decorator: its closure keeps every item ever read.

source: msamogh/nonechucks#13
"""

import functools

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "memory[index] = function(self, index)"
SOURCE = "msamogh/nonechucks#13"
torch.manual_seed(0)
torch.set_num_threads(1)


def memoize(function):
    memory = {}

    @functools.wraps(function)
    def wrapper(self, index):
        if index not in memory:
            memory[index] = function(self, index)
        return memory[index]

    return wrapper


class SafeDataset:
    @memoize
    def __getitem__(self, index):
        return torch.empty(2_500).fill_(index)


def make():
    data = SafeDataset()
    model = torch.nn.Linear(2_500, 2)

    def step(i):
        batch = torch.stack([data[4 * i + k] for k in range(4)])
        model(batch).sum().backward()
        model.zero_grad()

    return step
