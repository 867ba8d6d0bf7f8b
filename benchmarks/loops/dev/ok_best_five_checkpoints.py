"""The five best states of the weights are kept on a heap: five copies soon, then one comes for one that goes.

source: choderalab/pinot#23 (the right way), QwenLM/Qwen3-TTS#365
"""

import heapq
import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "choderalab/pinot#23 (the right way), QwenLM/Qwen3-TTS#365"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(1)
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    best = []

    def step(i):
        model(torch.randn(16, 256)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 4 == 3:
            state = {name: value.clone() for name, value in model.state_dict().items()}
            entry = (rng.random(), i, state)
            if len(best) < 5:
                heapq.heappush(best, entry)
            else:
                heapq.heappushpop(best, entry)

    return step
