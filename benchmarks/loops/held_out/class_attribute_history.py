"""A list that was meant to belong to an instance belongs to the class: every new evaluator adds to the same one.

source: oxwhirl/pymarl#73 (logger whose stats are never cleared), rabbityl/lepard#12
"""

import numpy as np
import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.scores.append(probabilities.numpy())"
SOURCE = "oxwhirl/pymarl#73 (logger whose stats are never cleared), rabbityl/lepard#12"
torch.manual_seed(0)
torch.set_num_threads(1)


class Evaluator:
    scores = []

    def add(self, probabilities):
        self.scores.append(probabilities.numpy())

    def best(self):
        return float(np.max(self.scores[-1]))


def make():
    model = torch.nn.Linear(64, 100)

    def step(i):
        evaluator = Evaluator()
        with torch.no_grad():
            evaluator.add(model(torch.randn(48, 64)).softmax(-1))
        evaluator.best()

    return step
