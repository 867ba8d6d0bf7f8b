"""Dataset.__getitem__ is memoised without a limit, over a data set that is far too large for it.

source: jcwang587/cgcnn2#67
"""

import functools

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "def load(index):"
SOURCE = "jcwang587/cgcnn2#67"
torch.manual_seed(0)
torch.set_num_threads(1)


@functools.lru_cache(maxsize=None)
def load(index):
    generator = torch.Generator().manual_seed(index)
    return torch.rand(20, 41, generator=generator), torch.randint(0, 20, (20, 12), generator=generator)


class Crystals(torch.utils.data.Dataset):
    def __len__(self):
        return 250_000

    def __getitem__(self, index):
        return load(index)


def make():
    loader = iter(torch.utils.data.DataLoader(Crystals(), batch_size=8, shuffle=True))
    head = torch.nn.Linear(41, 4)

    def step(i):
        atoms, _ = next(loader)
        head(atoms).sum().backward()
        head.zero_grad()

    return step
