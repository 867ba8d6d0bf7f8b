"""weakref.finalize is called once a step on an object that lives for ever: the registry keeps the arguments.

source: own case (releasing buffers with the model)
"""

import weakref

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "weakref.finalize(model, release, scratch)"
SOURCE = "own case (releasing buffers with the model)"
torch.manual_seed(0)
torch.set_num_threads(1)


def release(scratch):
    scratch.zero_()


def forward(model, x):
    scratch = torch.empty(320, 80)
    weakref.finalize(model, release, scratch)
    return torch.mm(x, model.weight.T, out=scratch)


def make():
    model = torch.nn.Linear(32, 80).requires_grad_(False)

    def step(i):
        forward(model, torch.randn(320, 32))

    return step
