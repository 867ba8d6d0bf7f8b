"""Weight averaging begins at step 80; instead of a running mean all weights since then are kept.

source: raharth/PyMatch#23, epfml/schedules-and-scaling#2
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.swa.append([p.detach().clone() for p in self.net.parameters()])"
SOURCE = "raharth/PyMatch#23, epfml/schedules-and-scaling#2"
ONSET = 80
torch.manual_seed(0)
torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(48, 120), torch.nn.Tanh(), torch.nn.Linear(120, 48))
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-2, momentum=0.9)
        self.swa = []

    def train_batch(self, number):
        self.optimizer.zero_grad()
        self.net(torch.randn(32, 48)).square().mean().backward()
        self.optimizer.step()
        if number >= 80:
            self.swa.append([p.detach().clone() for p in self.net.parameters()])


def make():
    return Trainer().train_batch
