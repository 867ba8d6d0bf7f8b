"""An immutable trace is made anew in each step from the old one and the newest output.

source: own case (functional style state), pattern of pnnl/neuromancer#292
the container is another object in each step
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'return {"h": h, "trace": (*state["trace"], h)}'
SOURCE = "own case (functional style state), pattern of pnnl/neuromancer#292"
torch.manual_seed(0)
torch.set_num_threads(1)


def advance(cell, state):
    h = cell(state["h"]).tanh()
    return {"h": h, "trace": (*state["trace"], h)}


def make():
    cell = torch.nn.Linear(64, 64).requires_grad_(False)
    state = {"h": torch.randn(120, 64), "trace": ()}

    def step(i):
        nonlocal state
        state = advance(cell, state)

    return step
