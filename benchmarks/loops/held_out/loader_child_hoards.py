"""A forked loader process keeps every sample that it has made. Only the child grows, this process does not.

source: pytorch/pytorch#62066, huggingface/datasets#4883
a monitor of this process alone answers stable; 300 KiB a step in the child
"""

import os

import torch

LABEL = "leak"
ACCEPT = ("leak", "stable")
LEAK_LINE = "samples.append(bytearray(os.urandom(1024)) * 300)"
SOURCE = "pytorch/pytorch#62066, huggingface/datasets#4883"
torch.manual_seed(0)
torch.set_num_threads(1)


def serve(requests, answers):
    samples = []
    while os.read(requests, 1):
        samples.append(bytearray(os.urandom(1024)) * 300)
        os.write(answers, b".")
    os._exit(0)


def make():
    requests, ask = os.pipe()
    answer, answers = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ask)
        os.close(answer)
        serve(requests, answers)
    os.close(requests)
    os.close(answers)
    model = torch.nn.Linear(32, 32)

    def step(i):
        os.write(ask, b".")
        os.read(answer, 1)
        model(torch.randn(64, 32)).mean().backward()
        model.zero_grad()

    def close():
        os.close(ask)
        os.waitpid(child, 0)

    step.close = close
    return step
