"""What a profiler window takes from the training: time of recorded steps, time to write, memory, files.

    python benchmarks/profiler_overhead.py

The demo's language model, with what a window records switched on bit by bit; torch.profiler alone with the same
settings and its own TensorBoard handler is the peer. Each variant runs in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from harness import heading, table

from tbmem import MemoryProfiler
from tbmem.demo.training import DemoTraining, pick_device

VARIANTS: dict[str, dict[str, Any]] = {
    "tbmem, everything": {},
    "tbmem, no address book": {"address_book": False},
    "tbmem, no stacks": {"with_stack": False},
    "tbmem, neither": {"with_stack": False, "address_book": False, "record_shapes": False},
}
PEER = "torch.profiler alone, everything"
WAIT, WARMUP, ACTIVE = 8, 2, 3


def run_tbmem(folder: str, overrides: dict[str, Any]) -> dict[str, float]:
    """One window under MemoryProfiler; what its own ledger says."""
    training = DemoTraining(pick_device(), WAIT + WARMUP + ACTIVE, None)
    schedule: dict[str, Any] = {"wait": WAIT, "warmup": WARMUP, "active": ACTIVE, "repeat": 1}
    with MemoryProfiler(folder=folder, console=False, **schedule, **overrides) as profiler:
        profiler.watch(training.model, training.optimizer)
        for number in range(1, WAIT + WARMUP + ACTIVE + 1):
            training.step(number)
            profiler.step()
    cost = profiler.ledger.cost()
    assert cost is not None and cost.plain_step_seconds is not None
    return {
        "plain": cost.plain_step_seconds,
        "recorded": cost.recorded_step_seconds,
        "writing": cost.writing_seconds,
        "bytes": cost.trace_bytes,
    }


def run_torch(folder: str) -> dict[str, float]:
    """The same steps under torch.profiler with its own TensorBoard handler."""
    training = DemoTraining(pick_device(), WAIT + WARMUP + ACTIVE, None)
    steps: list[float] = []
    writing = 0.0
    with torch.profiler.profile(
        schedule=torch.profiler.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1),
        on_trace_ready=torch.profiler.tensorboard_trace_handler(folder, use_gzip=True),
        profile_memory=True,
        with_stack=True,
        record_shapes=True,
    ) as profile:
        for number in range(1, WAIT + WARMUP + ACTIVE + 1):
            began = time.perf_counter()
            training.step(number)
            ended = time.perf_counter()
            steps.append(ended - began)
            profile.step()
            if number == WAIT + WARMUP + ACTIVE:
                writing = time.perf_counter() - ended
    return {
        "plain": statistics.median(steps[1:WAIT]),
        "recorded": statistics.median(steps[-ACTIVE:]),
        "writing": writing,
        "bytes": sum(path.stat().st_size for path in Path(folder).iterdir()),
    }


def run_one(name: str) -> dict[str, float]:
    """A variant in this process."""
    with tempfile.TemporaryDirectory() as folder:
        return run_torch(folder) if name == PEER else run_tbmem(folder, VARIANTS[name])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--one", help="run this variant here and print its figures as JSON")
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    if given.one:
        print(json.dumps(run_one(given.one)))
        return
    rows = []
    for name in (*VARIANTS, PEER):
        runs = []
        for _ in range(given.rounds):
            command = [sys.executable, __file__, "--one", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
        figures = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        slower = figures["recorded"] / figures["plain"]
        rows.append(
            [
                name,
                f"{slower:.2f}",
                f"{figures['writing'] / figures['plain']:.1f}",
                f"{figures['bytes'] / 2**20:.2f}",
            ]
        )
    print(heading(f"profiler_overhead.py: a window of {ACTIVE} steps, medians of {given.rounds} processes"))
    print(table(["variant", "recorded step / plain step", "writing / plain step", "MiB written"], rows))


if __name__ == "__main__":
    main()
