"""As ok_epoch_outputs_of_12, but the epoch is 100 steps: not to be told from a leak before its end.

source: Lightning-AI/pytorch-lightning#1510 (outputs are kept for the epoch)
"""

import torch

LABEL = "stable"
ACCEPT = ("leak", "stable")
LEAK_LINE = ""
SOURCE = "Lightning-AI/pytorch-lightning#1510 (outputs are kept for the epoch)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Linear(32, 100)
    outputs = []

    def step(i):
        out = model(torch.randn(80, 32))
        out.square().mean().backward()
        model.zero_grad()
        outputs.append(out.detach())
        if i % 100 == 99:
            torch.cat(outputs).std()
            outputs.clear()

    return step
