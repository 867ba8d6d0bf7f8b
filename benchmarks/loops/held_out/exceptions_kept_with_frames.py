"""Steps that fail are noted down as exceptions; each exception's traceback holds the frames and their tensors.

source: pytorch/pytorch#10348, pytorch/pytorch#27600
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.failures.append(error)"
SOURCE = "pytorch/pytorch#10348, pytorch/pytorch#27600"
torch.manual_seed(0)
torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(64, 32)
        self.failures = []

    def forward(self, x):
        hidden = self.model(x).relu()
        if hidden.shape[1] != x.shape[1]:
            raise ValueError(f"{hidden.shape[1]} columns instead of {x.shape[1]}")
        return hidden

    def try_step(self):
        try:
            self.forward(torch.randn(80, 64))
        except ValueError as error:
            self.failures.append(error)


def make():
    trainer = Trainer()

    def step(i):
        trainer.try_step()

    return step
