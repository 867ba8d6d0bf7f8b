"""Step 40 attends over 2 300 tokens instead of 160: the scores, 40 MiB and more, are freed within the step.

source: hpcaitech/Open-Sora#70, stickeritis/sticker#55
some tens of milliseconds: a peak that only the highest level within the step shows
"""

import torch

LABEL = "spike"
ACCEPT = ("spike", "stable")
LEAK_LINE = ""
SOURCE = "hpcaitech/Open-Sora#70, stickeritis/sticker#55"
ONSET = 40
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    project = torch.nn.Linear(32, 96).requires_grad_(False)

    def step(i):
        length = 2_300 if i == 40 else 160
        q, k, v = project(torch.randn(2, length, 32)).chunk(3, dim=-1)
        torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v

    return step
