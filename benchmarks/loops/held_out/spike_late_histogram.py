"""Step 210 logs a histogram of everything: a copy of all activations, held until the next step.

source: tensorflow/tensorflow#8265, lanpa/tensorboardX#406
30 MiB held for one step
"""

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "tensorflow/tensorflow#8265, lanpa/tensorboardX#406"
ONSET = 210
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
    logged = {}

    def step(i):
        logged.clear()
        out = model(torch.randn(256, 64))
        out.square().mean().backward()
        model.zero_grad()
        if i == 210:
            logged["activations"] = out.detach().double().repeat(240, 1)

    return step
