"""A new prompt vector is added to the optimizer as a parameter group in each step; old ones are never taken out.

source: pytorch/pytorch#53712 (add_param_group in a running training), own case
the state of Adam triples it
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'optimizer.add_param_group({"params": [prompt]})'
SOURCE = "pytorch/pytorch#53712 (add_param_group in a running training), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Linear(48, 4)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, foreach=False)

    def step(i):
        prompt = torch.nn.Parameter(torch.randn(20, 48))
        optimizer.add_param_group({"params": [prompt]})
        optimizer.zero_grad()
        model(prompt).square().mean().backward()
        optimizer.step()

    return step
