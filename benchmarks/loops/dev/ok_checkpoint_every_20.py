"""Every twentieth step the weights go into a buffer of bytes, which the next checkpoint replaces.

source: facebookresearch/fairseq#4049, NVIDIA-NeMo/Speech#14965
"""

import io

import torch

LABEL = "stable"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "facebookresearch/fairseq#4049, NVIDIA-NeMo/Speech#14965"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(200, 800), torch.nn.ReLU(), torch.nn.Linear(800, 200))
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    latest = {}

    def step(i):
        model(torch.randn(8, 200)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i % 20 == 19:
            buffer = io.BytesIO()
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, buffer)
            latest["checkpoint"] = buffer

    return step
