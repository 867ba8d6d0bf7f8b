"""A native extension allocates a workspace per call and nobody calls its free().

source: libvips/pyvips#169 (memory outside of Python), allenai/olmoearth_pretrain#563 (a leak inside of h5py)
no Python object holds it
"""

import ctypes

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "workspace = libc.malloc(size)"
SOURCE = "libvips/pyvips#169 (memory outside of Python), allenai/olmoearth_pretrain#563 (a leak inside of h5py)"
torch.manual_seed(0)
torch.set_num_threads(1)

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]


def resample(size):
    workspace = libc.malloc(size)
    ctypes.memset(workspace, 1, size)


def make():
    model = torch.nn.Linear(64, 64)

    def step(i):
        resample(24_000)
        model(torch.randn(64, 64)).mean().backward()
        model.zero_grad()

    return step
