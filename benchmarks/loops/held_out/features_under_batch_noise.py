"""A small leak below large noise: batches of 64 to 1024 live until the next one, pooled features for ever.

source: jacobgil/pytorch-grad-cam#88 (features kept), own case
"""

import random

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "pooled.append(hidden[:24].clone())"
SOURCE = "jacobgil/pytorch-grad-cam#88 (features kept), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(7)
    encoder = torch.nn.Linear(64, 512).requires_grad_(False)
    pooled = []
    current = {}

    def step(i):
        hidden = encoder(torch.randn(rng.randint(64, 1024), 64)).relu()
        current["hidden"] = hidden
        pooled.append(hidden[:24].clone())

    return step
