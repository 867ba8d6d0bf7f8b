"""Lengths with a heavy tail: the batch of a step is kept until the next, most are short and a few are long.

source: meta-llama/llama-cookbook#792 (jumps with the length of the sequences)
a long one may well be called a spike
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "meta-llama/llama-cookbook#792 (jumps with the length of the sequences)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(3)
    layer = torch.nn.Linear(16, 64)
    state = {}

    def step(i):
        length = min(int(rng.lognormvariate(5.5, 0.6)), 2_000)
        state["out"] = layer(torch.randn(8, length, 16))

    return step
