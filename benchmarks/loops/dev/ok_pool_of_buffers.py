"""Scratch buffers come from a pool that hands out the smallest one that fits and makes a new one if none does.

source: ooples/AiDotNet#1641 (reuse of freed blocks), own case
six sizes: grows until there are enough of the large ones
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "ooples/AiDotNet#1641 (reuse of freed blocks), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Pool:
    def __init__(self):
        self.free = []

    def take(self, size):
        fitting = [buffer for buffer in self.free if buffer.numel() >= size]
        if not fitting:
            return torch.empty(size)
        best = min(fitting, key=torch.numel)
        self.free = [buffer for buffer in self.free if buffer is not best]
        return best

    def give(self, buffer):
        self.free.append(buffer)


def make():
    rng = random.Random(9)
    pool = Pool()

    def step(i):
        taken = [pool.take(20_000 * rng.randint(1, 6)) for _ in range(3)]
        for buffer in taken:
            buffer[:1_000].normal_()
            pool.give(buffer)

    return step
