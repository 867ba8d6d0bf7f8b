"""A smoothing window as a plain list: append, and pop(0) once there are more than 30.

source: oxwhirl/pymarl#73 (done right); own case
grows for 30 steps
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "oxwhirl/pymarl#73 (done right); own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Linear(64, 100).requires_grad_(False)
    window = []

    def step(i):
        window.append(model(torch.randn(150, 64)))
        if len(window) > 30:
            window.pop(0)
        return sum(out.mean() for out in window)

    return step
