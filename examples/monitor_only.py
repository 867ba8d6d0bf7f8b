"""Counters and verdicts alone: nothing is recorded, next to no cost, made for production runs."""

from __future__ import annotations

import argparse

import torch

from tbmem import MemoryMonitor


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=50)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    with MemoryMonitor(folder=f"{given.logdir}/monitor-only", log_every_n_steps=10) as monitor:
        for _ in range(given.steps):
            model(torch.randn(64, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            for finding in monitor.step():
                print("found:", finding.kind.value, finding.message)
        for verdict in monitor.verdicts():
            print(f"{verdict.device}: {verdict.kind.value}: {verdict.message}")


if __name__ == "__main__":
    main()
