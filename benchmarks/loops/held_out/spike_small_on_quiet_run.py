"""A quiet run, and at step 28 one batch of 5 MiB where all others have 60 KiB.

source: arcee-ai/DALM#99 (some examples come with longer inputs)
"""

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "arcee-ai/DALM#99 (some examples come with longer inputs)"
ONSET = 28
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.GRU(16, 32, batch_first=True)
    held = {}

    def step(i):
        held["batch"] = torch.randn(8, 10_000 if i == 28 else 120, 16)
        with torch.no_grad():
            model(held["batch"][:, :40])

    return step
