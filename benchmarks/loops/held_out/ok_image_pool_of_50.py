"""A pool of 50 generated images: it is filled one by one, then each new image takes the place of a random one.

source: facebookresearch/hanabi_SAD#14 (grows until the buffer is full), own case (CycleGAN's pool)
linear growth for 50 steps
"""

import random

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "facebookresearch/hanabi_SAD#14 (grows until the buffer is full), own case (CycleGAN's pool)"
torch.manual_seed(0)
torch.set_num_threads(1)


class ImagePool:
    def __init__(self, size):
        self.size = size
        self.images = []
        self.rng = random.Random(0)

    def query(self, image):
        if len(self.images) < self.size:
            self.images.append(image)
            return image
        place = self.rng.randrange(self.size)
        old, self.images[place] = self.images[place], image
        return old


def make():
    pool = ImagePool(50)
    generator = torch.nn.Conv2d(3, 3, 3, padding=1)

    def step(i):
        with torch.no_grad():
            fake = generator(torch.randn(1, 3, 64, 64))
        pool.query(fake).mean()

    return step
