"""Self-play: each move's node points to its parent and to the policy there, so the root of all games stays.

source: werner-duvaud/muzero-general#157, initial-h/AlphaZero_Gomoku_MPI#42
a chain, no container: only one node is in a variable
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "root = Node(policies, float(policies.max()), root)"
SOURCE = "werner-duvaud/muzero-general#157, initial-h/AlphaZero_Gomoku_MPI#42"
torch.manual_seed(0)
torch.set_num_threads(1)


class Node:
    __slots__ = ("parent", "policy", "value")

    def __init__(self, policy, value, parent):
        self.policy = policy
        self.value = value
        self.parent = parent


def make():
    net = torch.nn.Linear(81, 82)
    root = Node(torch.zeros(1), 0.0, None)

    def step(i):
        nonlocal root
        with torch.no_grad():
            policies = net(torch.randn(64, 81)).softmax(-1)
        root = Node(policies, float(policies.max()), root)

    return step
