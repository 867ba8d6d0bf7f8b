"""A thread makes batches ahead into a queue that holds at most eight.

source: official-stockfish/nnue-pytorch#319, nvidia-cosmos/cosmos-rl#716 (bounded queues)
"""

import queue
import threading

import torch

LABEL = "stable"
ACCEPT = ("stable",)
LEAK_LINE = ""
SOURCE = "official-stockfish/nnue-pytorch#319, nvidia-cosmos/cosmos-rl#716 (bounded queues)"
torch.manual_seed(0)
torch.set_num_threads(1)


def produce(batches, stop):
    while not stop.is_set():
        batch = torch.randn(256, 128)
        while not stop.is_set():
            try:
                batches.put(batch, timeout=0.1)
                break
            except queue.Full:
                continue


def make():
    batches, stop = queue.Queue(maxsize=8), threading.Event()
    thread = threading.Thread(target=produce, args=(batches, stop), daemon=True)
    thread.start()
    model = torch.nn.Linear(128, 64)

    def step(i):
        model(batches.get()).square().mean().backward()
        model.zero_grad()

    def close():
        stop.set()
        thread.join()

    step.close = close
    return step
