"""Prototypes of each batch are registered as buffers with a name of their own, so that they are saved as well.

source: own case (prototype networks), pattern of choderalab/pinot#23
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'self.register_buffer(f"prototype_{number}", mean)'
SOURCE = "own case (prototype networks), pattern of choderalab/pinot#23"
torch.manual_seed(0)
torch.set_num_threads(1)


class Prototypes(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(40, 160)

    def forward(self, x, number):
        embedding = self.embed(x)
        mean = embedding.detach().view(10, -1, 160).mean(1)
        self.register_buffer(f"prototype_{number}", mean)
        return embedding


def make():
    model = Prototypes()

    def step(i):
        model(torch.randn(60, 40), i).square().mean().backward()
        model.zero_grad()

    return step
