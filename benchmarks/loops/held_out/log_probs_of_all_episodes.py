"""REINFORCE: the log-probabilities, with the policy's graph, are reset once in a life-time instead of each episode.

source: oxwhirl/pymarl#73, StanfordASL/neural-network-lyapunov#140
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.saved_log_probs.append(distribution.log_prob(action))"
SOURCE = "oxwhirl/pymarl#73, StanfordASL/neural-network-lyapunov#140"
torch.manual_seed(0)
torch.set_num_threads(1)


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 256), torch.nn.Linear(256, 6)
        self.saved_log_probs = []
        self.rewards = []

    def act(self, state):
        logits = self.second(self.first(state).relu())
        distribution = torch.distributions.Categorical(logits=logits, validate_args=False)
        action = distribution.sample()
        self.saved_log_probs.append(distribution.log_prob(action))
        self.rewards.append(float(action.float().mean()))


def make():
    policy = Policy()

    def step(i):
        policy.act(torch.randn(32, 8))

    return step
