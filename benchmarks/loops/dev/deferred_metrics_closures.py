"""Metrics are deferred as lambdas, to be worked out at the end of training; each closes over its batch's output.

source: own case (asynchronous logging), pattern of pfnet/pytorch-pfn-extras#49
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "pending.append(lambda: float((output.argmax(-1) == y).float().mean()))"
SOURCE = "own case (asynchronous logging), pattern of pfnet/pytorch-pfn-extras#49"
torch.manual_seed(0)
torch.set_num_threads(1)


def train(model, optimizer, pending):
    x, y = torch.randn(128, 32), torch.randint(0, 100, (128,))
    output = model(x)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(output, y).backward()
    optimizer.step()
    pending.append(lambda: float((output.argmax(-1) == y).float().mean()))


def make():
    model = torch.nn.Linear(32, 100)
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    pending = []

    def step(i):
        train(model, optimizer, pending)

    return step
