"""The batch is doubled at step 20 and again at step 90, as in schedules that grow the batch instead of cooling down.

source: EleutherAI/gpt-neox#215
two shifts of the level
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "EleutherAI/gpt-neox#215"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    state = {}

    def step(i):
        size = 256 * (1 + (i >= 20)) * (1 + (i >= 90))
        state["out"] = model(torch.randn(size, 64))
        state["out"].square().mean().backward()
        model.zero_grad()

    return step
