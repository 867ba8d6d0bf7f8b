"""Every tenth step a validation pass with four times the batch; its outputs are kept until the next training step.

source: Lightning-AI/pytorch-lightning#8215 (jumps inside validation)
the first one may be called a spike before the beat is known
"""

import torch

LABEL = "stable"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "Lightning-AI/pytorch-lightning#8215 (jumps inside validation)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    validation = {}

    def step(i):
        validation.clear()
        optimizer.zero_grad()
        model(torch.randn(128, 64)).square().mean().backward()
        optimizer.step()
        if i % 10 == 9:
            with torch.no_grad():
                validation["x"] = torch.randn(8_192, 64)
                validation["out"] = model(validation["x"])

    return step
