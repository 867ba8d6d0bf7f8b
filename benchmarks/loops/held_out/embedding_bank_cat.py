"""A bank of embeddings for retrieval grows by torch.cat in each step: one tensor, larger every time.

source: bowang-lab/Transformer-GCN-QA#6, oke-aditya/image_similarity#10
"""

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "self.bank = torch.cat((self.bank, embedding.detach()))"
SOURCE = "bowang-lab/Transformer-GCN-QA#6, oke-aditya/image_similarity#10"
torch.manual_seed(0)
torch.set_num_threads(1)


class Retriever(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(64, 128)
        self.bank = torch.empty(0, 128)

    def forward(self, x):
        embedding = self.encoder(x)
        self.bank = torch.cat((self.bank, embedding.detach()))
        return embedding


def make():
    retriever = Retriever()
    optimizer = torch.optim.SGD(retriever.parameters(), 1e-3)

    def step(i):
        retriever(torch.randn(40, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
