"""Step 33 writes the only checkpoint of the run into memory, an uploader takes it during the next step.

source: IDAS-Durham/JUNE#342, pytorch/xla#5115
25 MiB held for one step
"""

import io

import torch

LABEL = "spike"
ACCEPT = ("spike",)
LEAK_LINE = ""
SOURCE = "IDAS-Durham/JUNE#342, pytorch/xla#5115"
ONSET = 33
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(500, 2_000), torch.nn.ReLU(), torch.nn.Linear(2_000, 500))
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    upload = []

    def step(i):
        upload.clear()
        model(torch.randn(2, 500)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i == 33:
            buffer = io.BytesIO()
            torch.save([model.state_dict(), optimizer.state_dict()], buffer)
            upload.append(buffer)

    return step
