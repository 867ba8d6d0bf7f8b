"""The scheduled profiler alone: one trace per window, for TensorBoard and Perfetto."""

from __future__ import annotations

import argparse

import torch

from tbmem import MemoryProfiler


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=12)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    with MemoryProfiler(folder=f"{given.logdir}/profiler-only", wait=0, warmup=1, active=1, repeat=1) as profiler:
        profiler.watch(model, optimizer)
        for _ in range(given.steps):
            model(torch.randn(64, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    for trace in profiler.ledger.traces:
        print("wrote", trace)


if __name__ == "__main__":
    main()
