"""A probe registers its forward hooks in each step and throws the handles away; each hook holds a mask.

source: fffasttime/MRFI#5
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "layer.register_forward_hook(inject)"
SOURCE = "fffasttime/MRFI#5"
torch.manual_seed(0)
torch.set_num_threads(1)


def add_faults(model):
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            mask = torch.rand(layer.out_features, layer.in_features) < 0.001

            def inject(module, args, output, mask=mask):
                return output

            layer.register_forward_hook(inject)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(96, 128), torch.nn.ReLU(), torch.nn.Linear(128, 96))

    def step(i):
        add_faults(model)
        with torch.no_grad():
            model(torch.randn(8, 96))

    return step
