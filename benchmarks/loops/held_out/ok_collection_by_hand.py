"""The collector is off and called by hand every 25 steps; modules whose hooks close over them wait until then.

source: allenai/OLMo#509, pytorch/torchtitan#696, pytorch/pytorch#46386
"""

import gc

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "allenai/OLMo#509, pytorch/torchtitan#696, pytorch/pytorch#46386"
torch.manual_seed(0)
torch.set_num_threads(1)


class Probe(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(100, 100)
        self.calls = 0

        def count(module, args, output):
            self.calls += 1

        self.layer.register_forward_hook(count)

    def forward(self, x):
        return self.layer(x)


def make():
    gc.disable()

    def step(i):
        with torch.no_grad():
            Probe()(torch.randn(16, 100))
        if i % 25 == 24:
            gc.collect()

    return step
