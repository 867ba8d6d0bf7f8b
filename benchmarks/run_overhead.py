"""What `tbmem run` adds to a script: seconds to its start, microseconds to each step.

    python benchmarks/run_overhead.py [--rounds 9] [--steps 20000]

The same script runs under plain Python and under `tbmem run`, in turns, each time in a new process. Times are the
processor's, user and system, of all threads, so that a busy machine does not count. Start-up is the whole of a script
that only imports torch, its end included; compiled files are kept, as an installation keeps them. A step is the mean
of the script's own loop, with counters, verdict, log and scalars, without profiler windows: its first thousand steps,
in which counters are read more often than later, are a share of it. Two processes may differ by a tenth without tbmem,
so the monitor's own part is also measured inside of one, after 4,000 steps. Medians over rounds.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from harness import heading, table

LIMITS = {"start": 0.3, "step": 30e-6}
"""Seconds."""

IMPORTS = "import torch\n"
LOOP = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 64)
steps = int(sys.argv[1])
for number in range(steps + 200):
    if number == 200:
        began = time.process_time()
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print((time.process_time() - began) / steps)
"""


IN_TURN = """
import statistics, sys, time, torch
from tbmem.runtime.monitor import MemoryMonitor
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.randn(256, 64)
advance = MemoryMonitor.advance
def block(steps):
    began = time.thread_time()
    for _ in range(steps):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return (time.thread_time() - began) / steps
block(4000)
pairs = []
for _ in range(int(sys.argv[1]) // 300):
    times = []
    for call in (lambda self, profiled=False: (), advance):
        MemoryMonitor.advance = call
        block(20)
        times.append(block(150))
    pairs.append(times)
print(statistics.median(pair[1] - pair[0] for pair in pairs))
"""
"""The same loop, whose monitor sees a hundred and fifty steps and lets as many pass: one process, so one layout of
memory and one speed of the machine."""


BARE = ["-m", "tbmem", "run", "--"]
"""How a script is started by somebody who has set nothing."""


def watched(folder: Path) -> list[str]:
    """The words that put a script under tbmem, without windows, whose steps cost more."""
    return ["-m", "tbmem", "run", "--logdir", str(folder), "profiling.enabled=false", "output.console=false", "--"]


def run(prefix: list[str], script: Path, *arguments: str) -> tuple[float, str]:
    """Processor time in seconds, and what the script printed."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *prefix, str(script), *arguments]
    folder = script.parent  # the runs are written to
    keeping = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=keeping, cwd=folder)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime, done.stdout


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--steps", type=int, default=20_000)
    given = arguments.parse_args()
    took: dict[str, list[list[float]]] = {"start": [], "step": []}
    in_turn: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "imports.py").write_text(IMPORTS)
        (folder / "loop.py").write_text(LOOP)
        (folder / "in_turn.py").write_text(IN_TURN)
        variants = ([], watched(folder / "runs"))
        for turn in range(given.rounds + 1):
            starts = [run(prefix, folder / "imports.py")[0] for prefix in ([], BARE)]
            steps = [float(run(prefix, folder / "loop.py", str(given.steps))[1]) for prefix in variants]
            own = float(run(variants[1], folder / "in_turn.py", str(given.steps))[1])
            if turn:  # the first round warms the disk's cache
                took["start"].append(starts)
                took["step"].append(steps)
                in_turn.append(own)
    print(heading("run_overhead.py: tbmem run beside plain Python"))
    rows = []
    for what, unit, scale in (("start", "s", 1.0), ("step", "µs", 1e6)):
        plain, under = (statistics.median(values) * scale for values in zip(*took[what], strict=True))
        added = statistics.median(pair[1] - pair[0] for pair in took[what]) * scale
        limit = LIMITS[what] * scale
        rows.append([f"{what}, {unit}", f"{plain:.3g}", f"{under:.3g}", f"{added:.3g}", f"{limit:.3g}"])
    rows.append(["step, monitor off and on in turn, µs", "", "", f"{statistics.median(in_turn) * 1e6:.3g}", "30"])
    print(table(["", "python", "tbmem run", "added (median of pairs)", "at most"], rows))


if __name__ == "__main__":
    main()
