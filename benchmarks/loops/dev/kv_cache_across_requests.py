"""Keys and values of each decoded token are joined to the cache, which no request ever resets.

source: generative-computing/mellea#544
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "cache[name] = torch.cat([cache[name], new], dim=2)"
SOURCE = "generative-computing/mellea#544"
torch.manual_seed(0)
torch.set_num_threads(1)


def decode(layers, cache, x):
    for number, layer in enumerate(layers):
        for name, new in zip((f"k{number}", f"v{number}"), layer(x).view(2, 1, 4, 4, 32), strict=True):
            cache[name] = torch.cat([cache[name], new], dim=2)


def make():
    layers = [torch.nn.Linear(64, 256).requires_grad_(False) for _ in range(3)]
    cache = {f"{kind}{number}": torch.zeros(1, 4, 0, 32) for number in range(3) for kind in "kv"}

    def step(i):
        decode(layers, cache, torch.randn(4, 64))

    return step
