"""Images for the log are put into a queue in every step; the writer takes one out in every fourth.

source: lanpa/tensorboardX#116, mozilla/grcov#407 (an unbounded queue)
"""

import queue

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.events.put((tag, image.clone()))"
SOURCE = "lanpa/tensorboardX#116, mozilla/grcov#407 (an unbounded queue)"
torch.manual_seed(0)
torch.set_num_threads(1)


class Writer:
    def __init__(self):
        self.events = queue.Queue()

    def add_image(self, tag, image):
        self.events.put((tag, image.clone()))

    def write_one(self):
        return self.events.get_nowait()[1].mean().item()


def make():
    decoder = torch.nn.ConvTranspose2d(8, 3, 4, 2, 1)
    writer = Writer()

    def step(i):
        with torch.no_grad():
            image = decoder(torch.randn(1, 8, 56, 56))[0]
        writer.add_image(f"sample/{i}", image)
        if i % 4 == 3:
            writer.write_one()

    return step
