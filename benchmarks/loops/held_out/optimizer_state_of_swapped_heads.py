"""Every fifth step the head is replaced and handed to the same optimizer; state and parameters of old heads stay.

source: pytorch/pytorch#42428 (state of parameters that were replaced), own case
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = 'self.optimizer.add_param_group({"params": self.head.parameters()})'
SOURCE = "pytorch/pytorch#42428 (state of parameters that were replaced), own case"
ONSET = 4
torch.manual_seed(0)
torch.set_num_threads(1)


class Continual:
    def __init__(self):
        self.body = torch.nn.Linear(32, 64)
        self.head = torch.nn.Linear(64, 100)
        parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(parameters, 1e-3, foreach=False)

    def new_task(self):
        self.head = torch.nn.Linear(64, 100)
        self.optimizer.add_param_group({"params": self.head.parameters()})

    def train_batch(self):
        self.head(self.body(torch.randn(32, 32)).relu()).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def make():
    learner = Continual()

    def step(i):
        if i % 5 == 4:
            learner.new_task()
        learner.train_batch()

    return step
