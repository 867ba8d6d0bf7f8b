"""An exponential moving average of a loss that was never detached nor backpropagated: old graphs never die.

source: alexhernandezgarcia/gflownet#133
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.ema = self.alpha * self.ema + (1 - self.alpha) * value"
SOURCE = "alexhernandezgarcia/gflownet#133"
torch.manual_seed(0)
torch.set_num_threads(1)


class Average:
    def __init__(self, alpha=0.9):
        self.alpha = alpha
        self.ema = 0.0

    def update(self, value):
        self.ema = self.alpha * self.ema + (1 - self.alpha) * value


def make():
    policy = torch.nn.Sequential(torch.nn.Linear(20, 80), torch.nn.LeakyReLU(), torch.nn.Linear(80, 20))
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    terminal, inner = Average(), Average()

    def step(i):
        x = torch.randn(40, 20)
        loss = (policy(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        inner.update(loss.item())
        terminal.update(policy(x[:20]).square().mean())

    return step
