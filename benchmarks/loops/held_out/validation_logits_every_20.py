"""Every 20 steps a validation pass keeps its logits on the model; the list is cleared nowhere.

source: Lightning-AI/pytorch-lightning#8583, #5735
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.outputs.append(self.net(batch))"
SOURCE = "Lightning-AI/pytorch-lightning#8583, #5735"
ONSET = 19
torch.manual_seed(0)
torch.set_num_threads(1)


class Runner:
    def __init__(self):
        self.net = torch.nn.Linear(64, 128)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 1e-2)
        self.outputs = []

    def fit(self):
        self.optimizer.zero_grad()
        self.net(torch.randn(32, 64)).square().mean().backward()
        self.optimizer.step()

    @torch.no_grad()
    def validate(self):
        for _ in range(6):
            batch = torch.randn(160, 64)
            self.outputs.append(self.net(batch))


def make():
    runner = Runner()

    def step(i):
        runner.fit()
        if i % 20 == 19:
            runner.validate()

    return step
