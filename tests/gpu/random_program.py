"""A random program of allocations on two streams under memory history: ``python random_program.py SEED SNAPSHOT``."""

from __future__ import annotations

import pickle
import random
import sys

import torch


def main(seed: int, path: str) -> None:
    dice = random.Random(seed)
    torch.ones(1, device="cuda")
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=100_000)
    streams = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    live: list[torch.Tensor] = []
    for _ in range(2_000):
        if live and dice.random() < 0.48:
            live.pop(dice.randrange(len(live)))
        else:
            with torch.cuda.stream(streams[dice.random() < 0.2]):
                live.append(torch.empty(int(2 ** dice.uniform(4, 27.5)), dtype=torch.uint8, device="cuda"))
        if dice.random() < 0.002:
            torch.cuda.empty_cache()
    with open(path, "wb") as file:
        pickle.dump(torch.cuda.memory._snapshot(), file, protocol=4)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
