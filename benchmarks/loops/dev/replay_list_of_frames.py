"""Replay memory as a plain list: two uint8 frames for each transition, as numpy arrays, without any bound.

source: dotchen/LearningByCheating#6, jsikyoon/dreamer-torch#8
"""

import numpy as np
import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "episode.append((frame, action, following))"
SOURCE = "dotchen/LearningByCheating#6, jsikyoon/dreamer-torch#8"
torch.manual_seed(0)
torch.set_num_threads(1)


def make():
    rng = np.random.default_rng(0)
    critic = torch.nn.Linear(64 * 64, 1)
    episode = []
    frame = rng.integers(0, 255, (3, 64, 64), dtype=np.uint8)

    def step(i):
        nonlocal frame
        following = rng.integers(0, 255, (3, 64, 64), dtype=np.uint8)
        action = int(rng.integers(4))
        episode.append((frame, action, following))
        critic(torch.from_numpy(frame).float().mean(0).flatten() / 255)
        frame = following

    return step
