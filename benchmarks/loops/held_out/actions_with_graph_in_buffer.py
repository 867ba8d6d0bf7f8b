"""A replay buffer that is big enough for ever is fed actions whose graph is still attached.

source: oxwhirl/pymarl#73, Metta-AI/metta#1139
bounded by 20 000 entries on paper, which would be a gigabyte
"""

import collections

import torch

LABEL = "leak"
ACCEPT = ("leak", "stable")
LEAK_LINE = "self.memory.append((state, action, reward))"
SOURCE = "oxwhirl/pymarl#73, Metta-AI/metta#1139"
torch.manual_seed(0)
torch.set_num_threads(1)


class EpisodeRunner:
    def __init__(self):
        self.agent = torch.nn.Sequential(torch.nn.Linear(24, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
        self.memory = collections.deque(maxlen=20_000)

    def act(self):
        state = torch.randn(32, 24)
        action = torch.softmax(self.agent(state), dim=-1)
        reward = float(action.detach().max())
        self.memory.append((state, action, reward))


def make():
    runner = EpisodeRunner()

    def step(i):
        runner.act()

    return step
