"""Two leaks at once: the outputs (three quarters of the growth) and the losses with their graphs.

source: pnnl/neuromancer#292 (two leaks of one origin), TRI-ML/packnet-sfm#51
LEAK_LINE is that of the larger one
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.outputs.append(depth)"
SOURCE = "pnnl/neuromancer#292 (two leaks of one origin), TRI-ML/packnet-sfm#51"
torch.manual_seed(0)
torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ELU(), torch.nn.Conv2d(4, 1, 1))
        self.outputs = []
        self.losses = []

    def validate(self):
        image = torch.randn(4, 1, 48, 48)
        with torch.no_grad():
            depth = self.net(image)
        self.outputs.append(depth)
        smooth = self.net[2].weight.expand(8, 4, 1, 1).square().sum((0, 2, 3))
        self.losses.append(smooth.repeat(300).exp().sum())


def make():
    trainer = Trainer()

    def step(i):
        trainer.validate()

    return step
