"""A generator makes windows over everything that it has ever read instead of over the last few batches.

source: pattern of pytorch/pytorch#23900 (an iterator that stores what it has seen)
the list lives in a suspended frame only
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "seen.append(batch)"
SOURCE = "pattern of pytorch/pytorch#23900 (an iterator that stores what it has seen)"
torch.manual_seed(0)
torch.set_num_threads(1)


def batches():
    while True:
        yield torch.randn(400, 128)


def windows(source, width):
    seen = []
    for batch in source:
        seen.append(batch)
        if len(seen) >= width:
            yield torch.stack(seen[-width:])


def make():
    stream = windows(batches(), 3)
    model = torch.nn.Linear(128, 8)

    def step(i):
        model(next(stream)).mean().backward()
        model.zero_grad()

    return step
