"""Each fifth step registers with atexit what saves the checkpoint if the run is interrupted; none is unregistered.

source: own case
held by a table in C that Python cannot walk
"""

import atexit

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "atexit.register(save, {name: value.clone() for name, value in model.state_dict().items()})"
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def save(state):
    torch.save(state, "/dev/null")


def make():
    model = torch.nn.Linear(100, 100)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)

    def step(i):
        model(torch.randn(16, 100)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 5 == 0:
            atexit.register(save, {name: value.clone() for name, value in model.state_dict().items()})

    return step
