"""The collector is switched off for speed, and each batch makes an object that refers to itself.

source: facebookresearch/dinov3#150, facebookresearch/dinov3#340, meta-pytorch/torchrec#1226
"""

import gc

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.callback = self.on_ready"
SOURCE = "facebookresearch/dinov3#150, facebookresearch/dinov3#340, meta-pytorch/torchrec#1226"
torch.manual_seed(0)
torch.set_num_threads(1)


class Awaitable:
    def __init__(self, embeddings):
        self.embeddings = embeddings
        self.callback = self.on_ready

    def on_ready(self):
        return self.embeddings.sum()


def make():
    gc.disable()
    table = torch.nn.Embedding(1_000, 64)

    def step(i):
        with torch.no_grad():
            awaitable = Awaitable(table(torch.randint(0, 1_000, (500,))))
        awaitable.callback()

    return step
