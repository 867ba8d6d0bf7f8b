"""A plain training with dropout, noise and a scheduler: nothing is kept at all.

source: own case (the control)
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "own case (the control)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.2, batch_first=True)
    optimizer = torch.optim.AdamW(layer.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)

    def step(i):
        x = torch.randn(8, 24, 32)
        optimizer.zero_grad()
        (layer(x + 0.1 * torch.randn_like(x)) - x).square().mean().backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        scheduler.step()

    return step
