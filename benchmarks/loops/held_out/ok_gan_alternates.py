"""Two steps of the critic, one of the larger generator, and so on.

source: devzhk/Implicit-Competitive-Regularization#12 (memory of two optimizers), own case
"""

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "devzhk/Implicit-Competitive-Regularization#12 (memory of two optimizers), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    generator = torch.nn.Sequential(torch.nn.Linear(16, 256), torch.nn.ReLU(), torch.nn.Linear(256, 784))
    critic = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.LeakyReLU(), torch.nn.Linear(64, 1))
    optimizers = [torch.optim.RMSprop(net.parameters(), 1e-4) for net in (generator, critic)]
    last = {}

    def step(i):
        if i % 3 == 2:
            last["fake"] = generator(torch.randn(256, 16))
            loss = -critic(last["fake"]).mean()
        else:
            last["fake"] = generator(torch.randn(64, 16)).detach()
            loss = critic(last["fake"]).mean() - critic(torch.randn(64, 784)).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        optimizers[0 if i % 3 == 2 else 1].step()

    return step
