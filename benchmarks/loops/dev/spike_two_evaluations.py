"""At steps 24 and 190 somebody evaluates on all data in one batch; the result is kept until the next step.

source: huggingface/sentence-transformers#1433
12 MiB held for one step, twice
"""

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "huggingface/sentence-transformers#1433"
ONSET = 24
torch.manual_seed(0)
torch.set_num_threads(1)


class Trainer:
    def __init__(self):
        self.model = torch.nn.Linear(64, 96)
        self.similarities = None

    def train(self):
        self.similarities = None
        self.model(torch.randn(64, 64)).square().mean().backward()
        self.model.zero_grad()

    @torch.no_grad()
    def evaluate(self):
        embedding = self.model(torch.randn(1_750, 64))
        self.similarities = embedding @ embedding.T


def make():
    trainer = Trainer()

    def step(i):
        trainer.train()
        if i in (24, 190):
            trainer.evaluate()

    return step
