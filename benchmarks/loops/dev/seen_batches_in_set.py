"""A set of batches that were seen (tensors hash by identity, so that none is ever met again).

source: mittagessen/kraken#399 (memory grows with each batch), own case
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.seen.add(x)"
SOURCE = "mittagessen/kraken#399 (memory grows with each batch), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Deduplicate:
    def __init__(self):
        self.seen = set()

    def __call__(self, x):
        fresh = x not in self.seen
        self.seen.add(x)
        return fresh


def make():
    is_new = Deduplicate()
    model = torch.nn.Conv1d(4, 4, 5)

    def step(i):
        x = torch.randn(8, 4, 300)
        if is_new(x):
            model(x).mean().backward()
            model.zero_grad()

    return step
