"""The images get larger every tenth step, five times, and stay so.

source: nashory/pggan-pytorch#16 (taken for a leak while the network grows), andrewjong/ShineOn-Virtual-Tryon#62
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "nashory/pggan-pytorch#16 (taken for a leak while the network grows), andrewjong/ShineOn-Virtual-Tryon#62"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    conv = torch.nn.Conv2d(3, 6, 3, padding=1)
    last = {}

    def step(i):
        side = 48 + 16 * min(i // 10, 5)
        last["images"] = torch.randn(8, 3, side, side)
        last["features"] = conv(last["images"])
        last["features"].mean().backward()
        conv.zero_grad()

    return step
