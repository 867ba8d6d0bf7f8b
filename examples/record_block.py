"""Memory of any code: a snapshot where the device keeps memory history, else a trace."""

from __future__ import annotations

import argparse

import torch

import tbmem


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--steps", type=int, default=2)
    arguments.add_argument("--logdir", default="runs")
    given = arguments.parse_args()

    model = torch.nn.Linear(512, 512)
    with tbmem.record("forward", logdir=given.logdir, model=model) as recording:
        for _ in range(given.steps):
            model(torch.randn(256, 512)).sum().backward()
    for file in recording.files:
        print("wrote", file)


if __name__ == "__main__":
    main()
