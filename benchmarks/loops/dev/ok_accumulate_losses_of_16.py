"""The losses of 16 micro-steps are kept with their graphs and backpropagated together: a long sawtooth.

source: learnables/learn2learn#394 (graphs are kept until they are used)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "learnables/learn2learn#394 (graphs are kept until they are used)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(40, 200), torch.nn.ReLU(), torch.nn.Linear(200, 40))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    losses = []

    def step(i):
        losses.append(model(torch.randn(64, 40)).square().mean())
        if i % 16 == 15:
            torch.stack(losses).mean().backward()
            losses.clear()
            optimizer.step()
            optimizer.zero_grad()

    return step
