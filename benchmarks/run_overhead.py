"""What `tbmem run` adds to a script: seconds to its start, microseconds to each step.

    python benchmarks/run_overhead.py [--rounds 9] [--steps 20000]

The same script runs under plain Python and under `tbmem run`, in turns, each time in a new process. Times are the
processor's, user and system, of all threads, so that other programs do not count; a shared machine's caches still do.
Start-up is the whole of a script that only imports torch, its end included; compiled files are kept, as an installation
keeps them. Steps are the script's own, from the 200th on, with counters, verdict, log and scalars, without profiler
windows: the mean of all of them, and the median of blocks of 250. How far two processes differ without tbmem is told by
a second plain one in each round. What tbmem does at a step is also switched off and on in turn inside of one process,
after 4,000 steps, which no such difference touches. Medians over rounds.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import environment_of_users, heading, table

LIMITS = {"start": 0.3, "step": 30e-6}
"""Seconds."""

IMPORTS = "import torch\n"
TRAINING = """
import statistics, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 64)
def block(steps, clock):
    began = clock()
    for _ in range(steps):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (clock() - began) / steps
"""
LOOP = (
    TRAINING
    + """
block(200, time.process_time)
blocks = [block(250, time.process_time) for _ in range(int(sys.argv[1]) // 250)]
print(statistics.mean(blocks), statistics.median(blocks))
"""
)
IN_TURN = (
    TRAINING
    + """
from tbmem.runtime.process.optimizer_hook import OptimizerHook
block(4000, time.thread_time)
notify, pairs = OptimizerHook.notify, []
for _ in range(int(sys.argv[1]) // 300):
    times = []
    for call in (lambda optimizer: None, notify):
        OptimizerHook.notify = call
        block(20, time.thread_time)
        times.append(block(150, time.thread_time))
    pairs.append(times[1] - times[0])
print(statistics.median(pairs))
"""
)
"""The same loop, in which tbmem hears of a hundred and fifty steps and of as many not."""

BARE = ["-m", "tbmem", "run", "--"]
"""How a script is started by somebody who has set nothing."""


def watched(folder: Path) -> list[str]:
    """The words that put a script under tbmem, without windows, whose steps cost more."""
    return ["-m", "tbmem", "run", "--logdir", str(folder), "profiling.enabled=false", "output.console=false", "--"]


def run(prefix: list[str], script: Path, *arguments: str) -> tuple[float, list[float]]:
    """Processor time in seconds, and the numbers that the script printed."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *prefix, str(script), *arguments]
    folder = script.parent  # the runs are written to
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment_of_users(), cwd=folder)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime
    return took, [float(word) for word in done.stdout.split()]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=20_000)
    given = arguments.parse_args()
    starts: list[list[float]] = []
    steps: list[list[list[float]]] = []
    in_turn: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in (("imports.py", IMPORTS), ("loop.py", LOOP), ("in_turn.py", IN_TURN)):
            (folder / file).write_text(text)
        under, number = watched(folder / "runs"), str(given.steps)
        for turn in range(given.rounds + 1):
            start = [run(prefix, folder / "imports.py")[0] for prefix in ([], BARE, [])]
            step = [run(prefix, folder / "loop.py", number)[1] for prefix in ([], under, [])]
            own = run(under, folder / "in_turn.py", number)[1]
            if turn:  # the first round warms the disk's cache
                starts.append(start)
                steps.append(step)
                in_turn += own
    print(heading("run_overhead.py: tbmem run beside plain Python"))
    rows = [row("start, s", starts, 1.0, LIMITS["start"])]
    for position, what in enumerate(("mean of all steps, µs", "median of blocks, µs")):
        times = [[each[position] for each in step] for step in steps]
        rows.append(row(what, times, 1e6, LIMITS["step"]))
    rows.append(["step, off and on in turn, µs", "", "", f"{statistics.median(in_turn) * 1e6:.3g}", "30", ""])
    print(table(["", "python", "tbmem run", "added", "at most", "python again"], rows))


def row(what: str, times: list[list[float]], scale: float, limit: float) -> list[str]:
    """Medians over rounds of plain, watched and plain again."""
    plain, under, again = (statistics.median(column) * scale for column in zip(*times, strict=True))
    # a round's two plain processes stand around the watched one
    added = statistics.median(each[1] - (each[0] + each[2]) / 2 for each in times) * scale
    apart = statistics.median(abs(each[2] - each[0]) for each in times) * scale
    return [what, f"{plain:.3g}", f"{under:.3g}", f"{added:.3g}", f"{limit * scale:.3g}", f"{again:.3g} (±{apart:.2g})"]


if __name__ == "__main__":
    main()
