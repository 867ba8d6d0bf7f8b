"""Batches of 1 to 3 MiB, as the lengths will have it, and at step 110 one of 38 MiB.

source: huggingface/trl#1626, rapidsai/crossfit#18
"""

import random

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "huggingface/trl#1626, rapidsai/crossfit#18"
ONSET = 110
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(6)
    layer = torch.nn.Linear(32, 128).requires_grad_(False)
    held = {}

    def step(i):
        length = 9_800 if i == 110 else rng.randint(250, 750)
        held["out"] = layer(torch.randn(8, length, 32))

    return step
