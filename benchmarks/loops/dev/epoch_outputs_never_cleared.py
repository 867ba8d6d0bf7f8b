"""A Lightning-like module collects what training_step returns for the end of the epoch, and forgets to clear it.

source: Lightning-AI/pytorch-lightning#16520, #15514
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.training_step_outputs.append({"
SOURCE = "Lightning-AI/pytorch-lightning#16520, #15514"
torch.manual_seed(0)
torch.set_num_threads(1)


class LitClassifier(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 24))
        self.training_step_outputs = []

    def training_step(self, x, y):
        logits = self.net(x)
        loss = torch.nn.functional.cross_entropy(logits, y)
        self.training_step_outputs.append({"loss": loss.detach(), "logits": logits.detach(), "y": y})
        return loss

    def on_train_epoch_end(self):
        return torch.stack([out["loss"] for out in self.training_step_outputs[-30:]]).mean().item()


def make():
    lit = LitClassifier()
    optimizer = torch.optim.AdamW(lit.parameters(), 1e-3)

    def step(i):
        loss = lit.training_step(torch.randn(96, 48), torch.randint(0, 24, (96,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i % 30 == 29:
            lit.on_train_epoch_end()

    return step
