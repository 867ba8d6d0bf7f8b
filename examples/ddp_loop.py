"""Several ranks, each with its own sub-folder: torchrun --nproc-per-node 2 examples/ddp_loop.py."""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tbmem import MemoryCallback


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", dist.get_rank()) if torch.cuda.is_available() else torch.device("cpu")
    try:
        model = DistributedDataParallel(torch.nn.Linear(64, 10).to(device))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with MemoryCallback(run={"logdir": given.logdir, "ranks": "all"}) as memory:
            memory.watch(model, optimizer)
            for _ in range(given.steps):
                loss = model(torch.randn(32, 64, device=device)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                memory.step()
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
