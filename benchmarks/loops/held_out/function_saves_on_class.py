"""A custom autograd.Function keeps its inputs in a table on the class and drops them in backward; validation has none.

source: pattern of meta-pytorch/opacus#176 and pytorch/pytorch#25340
every tenth step only
"""

import itertools

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "Round.inputs[ctx.key] = x"
SOURCE = "pattern of meta-pytorch/opacus#176 and pytorch/pytorch#25340"
ONSET = 9
torch.manual_seed(0)
torch.set_num_threads(1)


class Round(torch.autograd.Function):
    inputs = {}
    keys = itertools.count()

    @staticmethod
    def forward(ctx, x):
        ctx.key = next(Round.keys)
        Round.inputs[ctx.key] = x
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        x = Round.inputs.pop(ctx.key)
        return grad * (x.abs() < 4)


def make():
    layer = torch.nn.Linear(40, 80)

    def step(i):
        Round.apply(layer(torch.randn(32, 40))).mean().backward()
        layer.zero_grad()
        if i % 10 == 9:
            for _ in range(5):
                Round.apply(layer(torch.randn(256, 40)))

    return step
