"""A replay buffer appends below its capacity of 2 000 transitions, and then overwrites the oldest.

source: own case
it does not fill within the run: what says that it will is its own code
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


class Replay:
    def __init__(self, capacity):
        self.capacity = capacity
        self.memory = []
        self.position = 0

    def push(self, transition):
        if len(self.memory) < self.capacity:
            self.memory.append(None)
        self.memory[self.position] = transition
        self.position = (self.position + 1) % self.capacity


def make():
    model = torch.nn.Linear(64, 4)
    replay = Replay(2_000)

    def step(i):
        state = torch.randn(64)
        action = model(state)
        replay.push((state, action.detach(), float(i)))
        action.square().mean().backward()
        model.zero_grad()

    return step
