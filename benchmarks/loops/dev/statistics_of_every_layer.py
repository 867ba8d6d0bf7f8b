"""Mean and deviation of each parameter's gradient are appended to a list of their own, as floats, for plots.

source: own case (per-layer statistics, as in gradient-flow plots)
160 lists, each of which grows by 32 bytes a step
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'history[f"{name}/std"].append(parameter.grad.std().item())'
SOURCE = "own case (per-layer statistics, as in gradient-flow plots)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(40)))
    history = {f"{name}/{what}": [] for name, _ in model.named_parameters() for what in ("mean", "std")}

    def step(i):
        model(torch.randn(8, 16)).square().mean().backward()
        for name, parameter in model.named_parameters():
            history[f"{name}/mean"].append(parameter.grad.mean().item())
            history[f"{name}/std"].append(parameter.grad.std().item())
        model.zero_grad()

    return step
