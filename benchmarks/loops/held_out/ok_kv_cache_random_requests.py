"""Keys and values grow token by token for 8 to 30 tokens, then the next request starts from nothing.

source: generative-computing/mellea#544 (the right way), vllm-project/vllm#31353
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "generative-computing/mellea#544 (the right way), vllm-project/vllm#31353"
torch.manual_seed(0)
torch.set_num_threads(1)


class Session:
    def __init__(self, tokens):
        self.left = tokens
        self.keys = self.values = torch.empty(8, 0, 64)

    def decode(self):
        self.left -= 1
        self.keys = torch.cat((self.keys, torch.randn(8, 8, 64)), 1)
        self.values = torch.cat((self.values, torch.randn(8, 8, 64)), 1)


def make():
    rng = random.Random(4)
    session = Session(20)

    def step(i):
        nonlocal session
        if not session.left:
            session = Session(rng.randint(8, 30))
        session.decode()

    return step
