"""Outputs are collected for an epoch of 12 steps, and the list is cleared at its end.

source: Lightning-AI/pytorch-lightning#16520 (the right way)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "Lightning-AI/pytorch-lightning#16520 (the right way)"
torch.manual_seed(0)
torch.set_num_threads(1)


class Lit(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(32, 200)
        self.training_step_outputs = []

    def training_step(self, x):
        out = self.net(x)
        self.training_step_outputs.append(out.detach())
        return out.square().mean()

    def on_train_epoch_end(self):
        mean = torch.cat(self.training_step_outputs).mean()
        self.training_step_outputs.clear()
        return mean


def make():
    lit = Lit()

    def step(i):
        lit.training_step(torch.randn(256, 32)).backward()
        lit.zero_grad()
        if i % 12 == 11:
            lit.on_train_epoch_end()

    return step
