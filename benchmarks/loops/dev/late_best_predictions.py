"""From step 40 on the score is good enough, and the predictions of every step are kept 'for the submission'.

source: pattern of returnn#1478 (starts after some epochs); microsoft/InnerEye-DeepLearning#209
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "submission[i] = model(x).detach()"
SOURCE = "pattern of returnn#1478 (starts after some epochs); microsoft/InnerEye-DeepLearning#209"
ONSET = 40
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    model = torch.nn.Sequential(torch.nn.Linear(40, 64), torch.nn.ReLU(), torch.nn.Linear(64, 40))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    submission = {}

    def step(i):
        x = torch.randn(200, 40)
        (model(x) - x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if i >= 40:
            submission[i] = model(x).detach()

    return step
