"""A WeakValueDictionary of embeddings: an entry is gone as soon as its batch is.

source: pytorch/pytorch#112076 (weak references to cached tensors)
"""

import weakref

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "pytorch/pytorch#112076 (weak references to cached tensors)"
torch.manual_seed(0)
torch.set_num_threads(1)


class Embedding:
    def __init__(self, value):
        self.value = value


def make():
    cache = weakref.WeakValueDictionary()
    current = []
    model = torch.nn.Linear(64, 256).requires_grad_(False)

    def step(i):
        cache[i] = embedding = Embedding(model(torch.randn(512, 64)))
        current.append(embedding)
        del current[:-4]

    return step
