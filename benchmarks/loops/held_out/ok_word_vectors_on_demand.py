"""Vectors of words are looked up once and kept; there are 150 words, and soon all of them have been seen.

source: own case (a tokenizer's cache), pattern of fgnt/lazy_dataset#31
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case (a tokenizer's cache), pattern of fgnt/lazy_dataset#31"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = random.Random(2)
    vectors = {}

    def vector(word):
        if word not in vectors:
            vectors[word] = torch.randn(6_000)
        return vectors[word]

    def step(i):
        torch.stack([vector(f"word{rng.randrange(150)}") for _ in range(16)]).mean(0)

    return step
