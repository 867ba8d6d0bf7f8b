"""Every tenth step a figure is drawn; like pyplot, the module's own table keeps each one until it is closed.

source: Tomiinek/Multilingual_Text_to_Speech#19, AIS-Bonn/OCVP-object-centric-video-prediction#3
numpy only
"""

import numpy as np
import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "_figures[number] = canvas"
SOURCE = "Tomiinek/Multilingual_Text_to_Speech#19, AIS-Bonn/OCVP-object-centric-video-prediction#3"
ONSET = 9
torch.manual_seed(0)
torch.set_num_threads(1)

_figures = {}


def figure(size):
    number = len(_figures) + 1
    canvas = np.full((size, size, 4), 255, dtype=np.uint8)
    _figures[number] = canvas
    return canvas


def make():
    model = torch.nn.Linear(64, 64)

    def step(i):
        model(torch.randn(32, 64)).mean().backward()
        model.zero_grad()
        if i % 10 == 9:
            canvas = figure(480)
            canvas[10:74, 10:74, 0] = model.weight.detach().clamp(0, 1).numpy() * 255

    return step
