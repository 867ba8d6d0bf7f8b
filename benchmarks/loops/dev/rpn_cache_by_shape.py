"""A detector caches anchors by the sizes of its feature maps; images of every size come along.

source: pytorch/vision#1657, LibreYOLO/libreyolo#541
random sizes: now and then a size comes back and nothing is added
"""

import random

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "_ANCHORS[key] = torch.cartesian_prod(rows, columns, ratios)"
SOURCE = "pytorch/vision#1657, LibreYOLO/libreyolo#541"
torch.manual_seed(0)
torch.set_num_threads(1)

_ANCHORS = {}


def anchors_for(height, width, stride):
    key = (height, width, stride)
    if key not in _ANCHORS:
        ratios = torch.tensor([0.5, 1.0, 2.0])
        rows, columns = (torch.arange(size // stride, dtype=ratios.dtype) for size in (height, width))
        _ANCHORS[key] = torch.cartesian_prod(rows, columns, ratios)
    return _ANCHORS[key]


def make():
    rng = random.Random(1)
    conv = torch.nn.Conv2d(3, 4, 3, stride=8)

    def step(i):
        height, width = rng.randrange(160, 420, 4), rng.randrange(160, 420, 4)
        with torch.no_grad():
            conv(torch.randn(1, 3, height, width))
        anchors_for(height, width, 8).sum()

    return step
