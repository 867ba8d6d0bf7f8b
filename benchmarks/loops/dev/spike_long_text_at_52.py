"""One text is twenty times longer than the others; its activations live until the next step replaces them.

source: k2-fsa/icefall#521
15 MiB held for one step
"""

import random

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "k2-fsa/icefall#521"
ONSET = 52
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(8)
    embed, mix = torch.nn.Embedding(300, 64), torch.nn.Linear(64, 128)
    state = {}

    def step(i):
        length = 5_500 if i == 52 else rng.randint(240, 300)
        state["out"] = mix(embed(torch.randint(0, 300, (4, length))))

    return step
