"""The loss of all batches so far is summed up and backpropagated with retain_graph in every step.

source: learnables/learn2learn#394, pytorch/pytorch#17568
steps get slower as well
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "loss = loss + torch.nn.functional.mse_loss(net(x), x)"
SOURCE = "learnables/learn2learn#394, pytorch/pytorch#17568"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    net = torch.nn.Sequential(torch.nn.Linear(16, 96), torch.nn.ReLU(), torch.nn.Linear(96, 16))
    loss = torch.zeros(())

    def step(i):
        nonlocal loss
        x = torch.randn(24, 16)
        loss = loss + torch.nn.functional.mse_loss(net(x), x)
        net.zero_grad()
        loss.backward(retain_graph=True)

    return step
