"""The objective of each iteration is kept for a plot, with the graph of a forward pass on the full tensor.

source: rballester/tntorch#19
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'info["loss_history"] += [loss]'
SOURCE = "rballester/tntorch#19"
torch.manual_seed(0)
torch.set_num_threads(1)


def optimize(cores, target, info):
    approximation = cores[0] @ cores[1]
    loss = torch.dist(approximation, target) / 100
    info["loss_history"] += [loss]
    grads = torch.autograd.grad(loss, cores, retain_graph=True)
    with torch.no_grad():
        for core, grad in zip(cores, grads, strict=True):
            core -= 0.01 * grad


def make():
    target = torch.randn(70, 70)
    cores = [torch.randn(70, 6, requires_grad=True), torch.randn(6, 70, requires_grad=True)]
    info = {"loss_history": []}

    def step(i):
        optimize(cores, target, info)

    return step
