"""The last 20 outputs in a deque with maxlen, for a running standard deviation.

source: DeNA/HandyRL#189 (a deque with a bound); own case
"""

import collections

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "DeNA/HandyRL#189 (a deque with a bound); own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Monitor:
    def __init__(self):
        self.recent = collections.deque(maxlen=20)

    def add(self, out):
        self.recent.append(out)
        return torch.stack(list(self.recent)).std().item()


def make():
    model = torch.nn.Linear(48, 64).requires_grad_(False)
    monitor = Monitor()

    def step(i):
        monitor.add(model(torch.randn(400, 48)))

    return step
