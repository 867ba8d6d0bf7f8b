"""Detections per image, boxes as arrays, wait in a defaultdict for a summary that nobody asks for.

source: pattern of Lightning-AI/torchmetrics#1949 and MiXaiLL76/faster_coco_eval#57
every step adds to other keys than the last
"""

import collections

import numpy as np
import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.detections[image_id].append(box)"
SOURCE = "pattern of Lightning-AI/torchmetrics#1949 and MiXaiLL76/faster_coco_eval#57"
torch.manual_seed(0)
torch.set_num_threads(1)


class CocoStyle:
    def __init__(self):
        self.detections = collections.defaultdict(list)

    def update(self, image_ids, boxes):
        for image_id, found in zip(image_ids, boxes, strict=True):
            for box in found:
                self.detections[image_id].append(box)


def make():
    rng = np.random.default_rng(3)
    head = torch.nn.Linear(32, 4)
    metric = CocoStyle()

    def step(i):
        with torch.no_grad():
            head(torch.randn(64, 32))
        boxes = [[rng.random(5) for _ in range(rng.integers(4, 12))] for _ in range(8)]
        metric.update(range(8 * i, 8 * i + 8), boxes)

    return step
