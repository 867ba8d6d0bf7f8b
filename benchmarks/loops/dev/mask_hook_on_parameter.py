"""A gradient mask is hooked onto the same parameter in every step; the old hooks stay beside the new ones.

source: chr5tphr/zennit#11, fffasttime/MRFI#5 (hooks that nobody removes)
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "weight.register_hook(lambda grad: grad * keep)"
SOURCE = "chr5tphr/zennit#11, fffasttime/MRFI#5 (hooks that nobody removes)"
torch.manual_seed(0)
torch.set_num_threads(1)


def freeze_columns(weight, share):
    keep = (torch.rand(1, weight.shape[1]) > share).float().expand_as(weight).clone()
    weight.register_hook(lambda grad: grad * keep)


def make():
    model = torch.nn.Linear(72, 40)

    def step(i):
        freeze_columns(model.weight, 0.01)
        model(torch.randn(8, 72)).square().mean().backward()
        model.zero_grad()

    return step
