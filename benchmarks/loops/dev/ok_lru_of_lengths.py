"""Masks by length in an lru_cache with room for all lengths that there are: fills by chance, then it is all hits.

source: huggingface/transformers#45412 (a cache that is bounded)
"""

import functools
import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "huggingface/transformers#45412 (a cache that is bounded)"
torch.manual_seed(0)
torch.set_num_threads(1)


@functools.lru_cache(maxsize=64)
def causal(length):
    return torch.full((length, length), float("-inf")).triu(1)


def make():
    rng = random.Random(5)

    def step(i):
        length = 8 * rng.randint(10, 25)
        scores = torch.randn(length, length) + causal(length)
        scores.softmax(-1)

    return step
