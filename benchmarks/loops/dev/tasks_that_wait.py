"""Each step starts an asyncio task that uploads its output once the server is ready; the server never is.

source: own case
no container of the user's
"""

import asyncio

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "await ready.wait()"
SOURCE = "own case"
torch.manual_seed(0)
torch.set_num_threads(1)


async def upload(output, ready):
    await ready.wait()
    output.numpy().tobytes()


async def train(model, ready):
    output = model(torch.randn(32, 64))
    output.square().mean().backward()
    model.zero_grad()
    asyncio.get_running_loop().create_task(upload(output.detach(), ready))
    await asyncio.sleep(0)


def make():
    model = torch.nn.Linear(64, 128)
    loop = asyncio.new_event_loop()
    ready = asyncio.Event()

    def step(i):
        loop.run_until_complete(train(model, ready))

    return step
