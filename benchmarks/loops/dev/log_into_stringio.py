"""Everything that the run prints goes into one StringIO as well, so that it could be uploaded at the end.

source: own case (captured standard output of a notebook)
text only, no tensor: the buffer is enlarged in jumps
"""

import contextlib
import io

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "print(report)"
SOURCE = "own case (captured standard output of a notebook)"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Linear(24, 24)
    captured = io.StringIO()

    def step(i):
        loss = model(torch.randn(32, 24)).square().mean()
        loss.backward()
        report = f"step {i} loss {loss.item():.5f}\n" + "\n".join(str(row) for row in model.weight.grad[:6].tolist())
        with contextlib.redirect_stdout(captured):
            print(report)
        model.zero_grad()

    return step
