"""Running totals of the parts of a loss are tensors: each += hangs one more graph node on them.

source: MultimediaTechLab/YOLO#83
small: backward has freed what the graph saved, the nodes stay
"""

import collections

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "totals[name] = totals[name] + part * len(x)"
SOURCE = "MultimediaTechLab/YOLO#83"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    body = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.SiLU(), torch.nn.Linear(64, 16), torch.nn.Tanh())
    optimizer = torch.optim.SGD(body.parameters(), 1e-3)
    totals = collections.defaultdict(lambda: torch.tensor(0.0))

    def step(i):
        x = torch.randn(24, 32)
        out = body(x)
        parts = {"box": out[:, :4].abs().mean(), "cls": out[:, 4:].exp().mean(), "dfl": out.square().mean()}
        optimizer.zero_grad()
        sum(parts.values()).backward()
        optimizer.step()
        for name, part in parts.items():
            totals[name] = totals[name] + part * len(x)

    return step
