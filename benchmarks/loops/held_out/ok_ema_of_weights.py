"""An exponential moving average of the weights, in place and without a graph, beside dropout and AdamW.

source: PaddlePaddle/PaddleNLP#6003, fadel/pytorch_ema#1 (the right way)
"""

import copy

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "PaddlePaddle/PaddleNLP#6003, fadel/pytorch_ema#1 (the right way)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.Dropout(0.3), torch.nn.Linear(256, 128))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step(i):
        model(torch.randn(64, 128)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for mean, value in zip(average.parameters(), model.parameters(), strict=True):
                mean.lerp_(value, 0.01)

    return step
