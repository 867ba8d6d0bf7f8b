"""get_logger() adds a handler in each call: all old handlers go on writing, so that the growth itself grows.

source: jsxlei/SCALEX#5, PaddleHQ/paddle-python-sdk#144
text only; slow at first, faster and faster
"""

import io
import logging

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "logger.addHandler(handler)"
SOURCE = "jsxlei/SCALEX#5, PaddleHQ/paddle-python-sdk#144"
torch.manual_seed(0)
torch.set_num_threads(1)


def get_logger():
    logger = logging.getLogger("training.of.a.model")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler(io.StringIO())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logger.addHandler(handler)
    return logger


def make():
    model = torch.nn.Linear(32, 32)

    def step(i):
        loss = model(torch.randn(16, 32)).square().mean()
        loss.backward()
        get_logger().info("step %d: loss %.4f, gradient norm %.4f", i, loss.item(), model.weight.grad.norm())
        model.zero_grad()

    return step
