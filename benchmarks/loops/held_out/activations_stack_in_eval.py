"""Forward hooks push activations that backward hooks pop; passes without backward push and nobody pops.

source: meta-pytorch/opacus#176
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "module.activations.append(args[0].detach())"
SOURCE = "meta-pytorch/opacus#176"
torch.manual_seed(0)
torch.set_num_threads(1)


def capture(module, args, output):
    module.activations.append(args[0].detach())


def per_sample(module, grad_input, grad_output):
    module.activations.pop()


def make():
    model = torch.nn.Sequential(torch.nn.Linear(40, 60), torch.nn.ReLU(), torch.nn.Linear(60, 40))
    for layer in (model[0], model[2]):
        layer.activations = []
        layer.register_forward_hook(capture)
        layer.register_full_backward_hook(per_sample)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step(i):
        model(torch.randn(64, 40, requires_grad=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model(torch.randn(64, 40))

    return step
