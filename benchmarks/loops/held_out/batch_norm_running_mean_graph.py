"""A normalising flow's own batch norm updates its running mean from tensors that still have a graph.

source: bayesiains/nflows#11
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.running_mean = 0.95 * self.running_mean + 0.05 * mean"
SOURCE = "bayesiains/nflows#11"
torch.manual_seed(0)
torch.set_num_threads(1)


class FlowNorm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(width))
        self.running_mean = torch.zeros(width)

    def forward(self, x):
        mean = x.mean(0)
        self.running_mean = 0.95 * self.running_mean + 0.05 * mean
        return (x - mean) * self.scale


def make():
    first, norm = torch.nn.Linear(32, 64), FlowNorm(64)

    def step(i):
        # likelihood only, as in evaluation of a flow
        return norm(first(torch.randn(128, 32)).tanh()).square().sum().item()

    return step
