"""itertools.tee: the loop reads one branch; the other, meant for a look at the data, is hardly ever read.

source: pattern of pytorch/pytorch#23900 (itertools over a loader)
"""

import itertools

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "train, preview = itertools.tee(loader)"
SOURCE = "pattern of pytorch/pytorch#23900 (itertools over a loader)"
torch.manual_seed(0)
torch.set_num_threads(1)


def loader_of(size):
    for _ in range(100_000):
        yield torch.randn(size, 100), torch.randint(0, 10, (size,))


def make():
    loader = loader_of(40)
    train, preview = itertools.tee(loader)
    next(preview)
    model = torch.nn.Linear(100, 10)

    def step(i):
        x, y = next(train)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        model.zero_grad()

    step.preview = preview
    return step
