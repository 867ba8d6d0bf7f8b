"""Every 25 steps a validation pass of eight batches whose outputs are gathered in a list that ends with the pass.

source: Lightning-AI/pytorch-lightning#8583 (the right way)
"""

import torch

LABEL = "stable"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "Lightning-AI/pytorch-lightning#8583 (the right way)"
torch.manual_seed(0)
torch.set_num_threads(1)


@torch.no_grad()
def validate(model):
    outputs = [model(torch.randn(1_024, 32)) for _ in range(8)]
    return torch.cat(outputs).std().item()


def make():
    model = torch.nn.Linear(32, 128)

    def step(i):
        model(torch.randn(64, 32)).square().mean().backward()
        model.zero_grad()
        if i % 25 == 24:
            validate(model)

    return step
