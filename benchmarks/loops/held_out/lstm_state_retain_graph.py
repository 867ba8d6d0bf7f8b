"""Truncated back-propagation forgotten: the state goes on with its graph, and retain_graph silences the error.

source: pytorch/pytorch#2198, pytorch/pytorch#1536
steps get slower as well
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.hidden = self.lstm(x, self.hidden)"
SOURCE = "pytorch/pytorch#2198, pytorch/pytorch#1536"
torch.manual_seed(0)
torch.set_num_threads(1)


class LanguageModel(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = torch.nn.LSTMCell(12, 24)
        self.hidden = None

    def forward(self, x):
        self.hidden = self.lstm(x, self.hidden)
        return self.hidden[0]


def make():
    model = LanguageModel()

    def step(i):
        model(torch.randn(8, 12)).square().mean().backward(retain_graph=True)
        model.zero_grad()

    return step
