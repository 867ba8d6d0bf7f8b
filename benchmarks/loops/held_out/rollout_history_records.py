"""Every rollout, plain Python lists of token ids and log-probabilities, is kept in a history that is never cut.

source: PrimeIntellect-ai/prime-rl#1936
no tensor in it
"""

import random

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.rollout_history.append(rollout)"
SOURCE = "PrimeIntellect-ai/prime-rl#1936"
torch.manual_seed(0)
torch.set_num_threads(1)


class Buffer:
    def __init__(self):
        self.rng = random.Random(0)
        self.rollout_history = []

    def update(self, number):
        rollout = {
            "problem": number,
            "completion": [self.rng.randrange(300, 50_000) for _ in range(160)],
            "logprobs": [self.rng.random() for _ in range(160)],
            "reward": self.rng.random(),
        }
        self.rollout_history.append(rollout)
        return rollout["reward"]


def make():
    buffer = Buffer()
    policy = torch.nn.Linear(64, 64)

    def step(i):
        reward = buffer.update(i)
        (policy(torch.randn(16, 64)).mean() * reward).backward()
        policy.zero_grad()

    return step
