"""A worker thread post-processes the batches and keeps the results in a local list of its own.

source: pattern of uber/petastorm#748 (a background iterator), own case
the list is a local variable of another thread
"""

import queue
import threading

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "results.append(batch.sort(dim=1).values)"
SOURCE = "pattern of uber/petastorm#748 (a background iterator), own case"
torch.manual_seed(0)
torch.set_num_threads(1)


def work(todo, done):
    results = []
    while (batch := todo.get()) is not None:
        results.append(batch.sort(dim=1).values)
        done.put(len(results))


def make():
    todo, done = queue.Queue(), queue.Queue()
    thread = threading.Thread(target=work, args=(todo, done), daemon=True)
    thread.start()

    def step(i):
        todo.put(torch.randn(50, 200))
        done.get()

    def close():
        todo.put(None)
        thread.join()

    step.close = close
    return step
