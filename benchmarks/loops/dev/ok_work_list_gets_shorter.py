"""A list of 250 shards is worked off from its end: memory falls in every step until nothing is left.

source: fgnt/lazy_dataset#32 (data held in memory), own case
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "fgnt/lazy_dataset#32 (data held in memory), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    shards = [torch.randn(200, 100) for _ in range(250)]
    model = torch.nn.Linear(100, 10)

    def step(i):
        shard = shards.pop() if shards else torch.randn(200, 100)
        model(shard).square().mean().backward()
        model.zero_grad()

    return step
