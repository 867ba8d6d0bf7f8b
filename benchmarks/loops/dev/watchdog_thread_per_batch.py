"""Each batch starts a watchdog thread that waits for a signal that never comes, its batch in hand.

source: own case (time-outs around a data step)
"""

import threading

import torch

LABEL = "leak"
ACCEPT = ("leak",)
LEAK_LINE = "threading.Thread(target=watch, args=(batch, done), daemon=True).start()"
SOURCE = "own case (time-outs around a data step)"
torch.manual_seed(0)
torch.set_num_threads(1)


def watch(batch, done):
    if not done.wait(3600):
        raise TimeoutError(f"batch of {len(batch)}")


def make():
    model = torch.nn.Linear(64, 16)
    done = threading.Event()

    def step(i):
        batch = torch.randn(64, 64)
        threading.Thread(target=watch, args=(batch, done), daemon=True).start()
        model(batch).mean().backward()
        model.zero_grad()

    def close():
        done.set()
        for thread in threading.enumerate():
            if thread.name.endswith("(watch)"):
                thread.join()  # hundreds that end while the interpreter does let torch abort, with or without tbmem

    step.close = close
    return step
