"""Every step fills 4 MiB for a moment and gives them back; between steps there is nothing.

source: nntrainer/nntrainer#917 (temporary memory in every iteration)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "nntrainer/nntrainer#917 (temporary memory in every iteration)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    weight = torch.randn(256, 64)

    def step(i):
        distances = torch.cdist(torch.randn(4_096, 64), weight)
        distances.argmin(1)

    return step
