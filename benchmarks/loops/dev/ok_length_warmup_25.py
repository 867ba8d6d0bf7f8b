"""Sequence-length warm-up: 40 tokens more in each of 25 steps, then always the full length.

source: mosaicml/composer#770, allenai/OLMo-core#41
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "mosaicml/composer#770, allenai/OLMo-core#41"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    embed, head = torch.nn.Embedding(500, 48), torch.nn.Linear(48, 96)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], 1e-2)
    kept = {}

    def step(i):
        length = 40 * min(i + 1, 25)
        kept["batch"] = tokens = torch.randint(0, 500, (4, length))
        kept["logits"] = head(embed(tokens))
        optimizer.zero_grad()
        kept["logits"].square().mean().backward()
        optimizer.step()

    return step
