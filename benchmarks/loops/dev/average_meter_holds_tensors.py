"""An AverageMeter is fed the loss itself: its sum is a tensor, and each batch's graph of the frozen teacher stays.

source: rabbityl/lepard#12
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.sum += value * count"
SOURCE = "rabbityl/lepard#12"
torch.manual_seed(0)
torch.set_num_threads(1)


class AverageMeter:
    def __init__(self):
        self.value = self.sum = self.average = self.count = 0

    def update(self, value, count=1):
        self.value = value
        self.sum += value * count
        self.count += count
        self.average = self.sum / self.count


def make():
    features = torch.nn.Sequential(torch.nn.Linear(50, 100), torch.nn.Softplus(), torch.nn.Linear(100, 10))
    meters = {name: AverageMeter() for name in ("train", "regularisation")}

    def step(i):
        x = torch.randn(72, 50)
        meters["train"].update(features(x).mean().item(), len(x))
        meters["regularisation"].update(features(x).abs().sum(), len(x))

    return step
