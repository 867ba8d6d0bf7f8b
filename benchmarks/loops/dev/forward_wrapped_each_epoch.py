"""At every tenth step model.forward is wrapped once more, to take statistics: a chain of closures with a buffer each.

source: own case
no container; each step is a little slower as well
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "model.forward = with_statistics(model.forward, 256)"
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def with_statistics(forward, features):
    total = torch.zeros(32, features)

    def wrapped(x):
        out = forward(x)
        total.add_(out.detach())
        return out

    return wrapped


def make():
    model = torch.nn.Linear(64, 256)

    def step(i):
        if i % 10 == 0:
            model.forward = with_statistics(model.forward, 256)
        model(torch.randn(32, 64)).square().mean().backward()
        model.zero_grad()

    return step
