"""Whether a long run with many profiler windows grows: resident memory over hundreds of thousands of steps.

    python benchmarks/soak.py [--steps 300000] [--every 1000] [--settled 10000] [--limit 5] [--where]

A small model trains under the default configuration with a window every ``--every`` steps for ever (``repeat: 0``).
In each window, and at every tenth step, it is evaluated with gradients on and without a backward, as a metric that
forgot ``no_grad`` does: what a window keeps of that would pile up. PASS means that the process is at most ``--limit``
MiB larger at the end than after ``--settled`` steps.

Why so many steps: 300 windows follow the settled ones. A window that keeps 20 KiB makes 5.7 MiB of them, a step that
keeps 20 bytes 5.5 MiB: both are over the limit, and allocators' own drift, which ends after some windows, is not.

Old traces are deleted as the run goes on, so that the disk does not fill. ``--where`` also prints which lines of Python
hold more than after the settled steps (tracemalloc; several times slower, and its own memory is in the figures).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import psutil
import torch
from harness import heading, table

from tbmem import MemoryCallback
from tbmem.sources.counters.malloc import MallocHeap

WARMUP, ACTIVE = 2, 3
MIB = 1 << 20


def main() -> None:
    arguments = _arguments()
    print(heading("soak.py: resident memory of a long run with many windows"), flush=True)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        course = run(arguments, Path(folder))
    grown = course[-1][1] - next(row for row in course if row[0] >= arguments.settled)[1]
    rows = [[f"{step:,}", f"{resident:.1f}", f"{heap:.1f}", f"{took:.0f}"] for step, resident, heap, took in course]
    print("\n" + table(["step", "resident MiB", "allocated by malloc MiB", "seconds"], rows))
    windows = arguments.steps // arguments.every
    verdict = "PASS" if grown <= arguments.limit else "FAIL"
    print(
        f"\n{verdict}: {grown:+.1f} MiB from step {arguments.settled:,} to {arguments.steps:,} with {windows} windows"
        f" (limit {arguments.limit:g})"
    )
    sys.exit(verdict == "FAIL")


def run(arguments: argparse.Namespace, folder: Path) -> list[tuple[int, float, float, float]]:
    """Train, and return step, resident MiB, MiB in use by malloc and seconds at some thirty moments."""
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1), torch.nn.Sigmoid())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    points = _points(arguments)
    course: list[tuple[int, float, float, float]] = []
    settled = None
    began = time.monotonic()
    profiling = {"wait": arguments.every - WARMUP - ACTIVE, "warmup": WARMUP, "active": ACTIVE, "repeat": 0}
    with MemoryCallback(run={"logdir": str(folder)}, profiling=profiling, output={"console": False}) as memory:
        memory.watch(model, optimizer)
        for step in range(1, arguments.steps + 1):
            model(torch.randn(8, 16)).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % 10 == 0 or (step - 1) % arguments.every >= arguments.every - ACTIVE:
                model(torch.randn(32, 16)).mean()
            memory.step()
            if step in points:
                _delete_traces(folder)
                course.append((step, *_memory(), time.monotonic() - began))
                print("{:>8,} {:8.1f} MiB {:8.1f} MiB {:6.0f} s".format(*course[-1]), flush=True)
            if arguments.where and step == arguments.settled:
                tracemalloc.start(8)
            if arguments.where and step == arguments.settled + 2 * arguments.every:
                settled = tracemalloc.take_snapshot()
        if settled is not None:
            _show_growth(settled)
    return course


def _points(arguments: argparse.Namespace) -> set[int]:
    spacing = max(arguments.steps // 30, 1)
    return {arguments.settled, arguments.steps, *range(spacing, arguments.steps + 1, spacing)}


def _memory() -> tuple[float, float]:
    allocated = MallocHeap.of_this_process(rationed=False).read().allocated
    return psutil.Process().memory_info().rss / MIB, (allocated or 0) / MIB


def _delete_traces(folder: Path) -> None:
    for pattern in ("*.pt.trace.json.gz", "*.addresses.npz"):
        for path in folder.rglob(pattern):
            path.unlink()


def _show_growth(settled: tracemalloc.Snapshot) -> None:
    for statistic in tracemalloc.take_snapshot().compare_to(settled, "traceback")[:12]:
        print(f"{statistic.size_diff / 1024:+9.1f} KiB {statistic.count_diff:+7} blocks")
        print("\n".join(statistic.traceback.format()[-6:]))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--every", type=int, default=1000, help="steps from one window to the next")
    parser.add_argument("--settled", type=int, default=10_000, help="steps after which nothing may grow")
    parser.add_argument("--limit", type=float, default=5.0, help="MiB")
    parser.add_argument("--where", action="store_true", help="show which lines of Python hold more at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
