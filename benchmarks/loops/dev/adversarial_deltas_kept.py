"""The perturbations of an attack are leaves that keep their gradient; all of them are kept for a gallery.

source: own case (adversarial training), pattern of pytorch/pytorch#16744
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "gallery.append(delta)"
SOURCE = "own case (adversarial training), pattern of pytorch/pytorch#16744"
torch.manual_seed(0)
torch.set_num_threads(1)


def attack(model, x, gallery):
    delta = torch.zeros_like(x, requires_grad=True)
    (-model(x + delta).square().mean()).backward()
    gallery.append(delta)
    return x + 0.01 * delta.grad.sign()


def make():
    model = torch.nn.Linear(100, 10)
    gallery = []

    def step(i):
        x = attack(model, torch.randn(20, 100), gallery)
        model.zero_grad()
        model(x).mean().backward()
        model.zero_grad()

    return step
