"""Log lines, formatted text of all gradients, are collected in a list to be written 'at the end'.

source: oxwhirl/pymarl#73 (stats of the logger are never cleared)
text only, no tensor
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "lines.extend(describe(name, p.grad) for name, p in model.named_parameters())"
SOURCE = "oxwhirl/pymarl#73 (stats of the logger are never cleared)"
torch.manual_seed(0)
torch.set_num_threads(1)


def describe(name, grad):
    return f"{name}: " + " ".join(f"{value:+.4e}" for value in grad.flatten()[:150].tolist())


def make():
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.Tanh(), torch.nn.Linear(32, 8))
    lines = []

    def step(i):
        model(torch.randn(16, 32)).square().mean().backward()
        lines.extend(describe(name, p.grad) for name, p in model.named_parameters())
        model.zero_grad()

    return step
