"""Only the first token of each output is kept, but a view keeps the whole output.

source: ViCCo-Group/thingsvision#150
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "features.append(tokens[:, 0])"
SOURCE = "ViCCo-Group/thingsvision#150"
torch.manual_seed(0)
torch.set_num_threads(1)


@torch.no_grad()
def extract(encoder, images, features):
    tokens = encoder(images)
    features.append(tokens[:, 0])


def make():
    encoder = torch.nn.TransformerEncoderLayer(32, 2, 64, batch_first=True).eval()
    features = []

    def step(i):
        extract(encoder, torch.randn(16, 50, 32), features)

    return step
