"""A memory bank of fixed size, written in place at a pointer that goes round.

source: own case (MoCo's queue); the right way of bowang-lab/Transformer-GCN-QA#6
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case (MoCo's queue); the right way of bowang-lab/Transformer-GCN-QA#6"
torch.manual_seed(0)
torch.set_num_threads(1)


class Contrast(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(48, 64)
        self.register_buffer("queue", torch.randn(2_048, 64))
        self.pointer = 0

    def forward(self, x):
        q = self.encoder(x)
        logits = q @ self.queue.T
        with torch.no_grad():
            self.queue = self.queue.clone()
            self.queue[self.pointer : self.pointer + len(q)] = q
            self.pointer = (self.pointer + len(q)) % len(self.queue)
        return logits.logsumexp(1).mean()


def make():
    model = Contrast()
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step(i):
        optimizer.zero_grad()
        model(torch.randn(64, 48)).backward()
        optimizer.step()

    return step
