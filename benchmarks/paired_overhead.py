"""What `tbmem run` adds to a training of small steps, in each part of the run: both at the same time, a core each.

    python benchmarks/paired_overhead.py [--steps 3601] [--pairs 1] [VARIANT ...]

A variant is a preset (``default``, ``light``), or settings with commas (``profiling.enabled=false``); ``plain`` is a
second run without tbmem, which tells how far two equal processes differ. Others show what remains when nothing is
watched: ``stopped`` (a run of tbmem that was started and stopped before the first step), ``windowed`` (one by default
that was stopped after ten steps, its window among them), ``profiled`` (torch's profiler alone, around three steps
before the first one), ``threaded`` (a Python thread that was started and has ended before the first step) and
``waiting`` (one that waits throughout). With ``--thread`` a thread waits in the plain run as well: in a process with
one thread glibc's malloc takes no locks, in one that has had two it does, whatever they are for.

The plain and the other run are pinned to a core each, and two others of them to the other core each, so that a machine
that becomes slower is so for both. Times are the processor's, of all threads and of the main one, in the first 30 steps
and then of 300 steps each. Linux, two cores that are otherwise idle.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness import environment_of_users, heading, table

SCRIPT = """
import sys, time, torch
from torch import nn
torch.manual_seed(0)
WIDTH, HEADS = 48, 3
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.inputs(self.first(x)).split(WIDTH, 2)
        query, key, value = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        mixed = (query @ key.transpose(-2, -1) / 4).softmax(-1) @ value
        x = x + self.output(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.second(x))
model = nn.Sequential(nn.Embedding(64, WIDTH), *(Block() for _ in range(3)), nn.Linear(WIDTH, 64))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
def train():
    tokens, targets = torch.randint(0, 64, (2, 16, 32))
    loss = nn.functional.cross_entropy(model(tokens).view(-1, 64), targets.view(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
steps, before = int(sys.argv[1]), sys.argv[2]
if before == "stopped":
    from tbmem import MemoryCallback
    with MemoryCallback("light", run={"logdir": sys.argv[3]}) as memory:
        memory.step()
if before == "windowed":
    from tbmem import MemoryCallback
    with MemoryCallback(run={"logdir": sys.argv[3]}) as memory:
        for _ in range(10):
            train()
            memory.step()
if before == "threaded":
    import threading
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
if before in ("waiting", "plain-waiting"):
    import threading
    threading.Thread(target=threading.Event().wait, daemon=True).start()
if before == "profiled":
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True, with_stack=True):
        for _ in range(3):
            train()
times = []
for step in range(steps + 1):
    if step in (0, 30, steps) or step % 300 == 0:
        times.append((time.process_time(), time.thread_time()))
    train()
print(*(f"{after[0] - before[0]}:{after[1] - before[1]}" for before, after in zip(times, times[1:])))
"""
_ALONE = ("plain", "plain-waiting", "stopped", "windowed", "profiled", "threaded", "waiting")
"""Variants that plain Python runs."""
Times = list[tuple[float, float]]
"""Seconds of the process, and of its main thread, for each part of the run."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("variants", nargs="*", default=["plain", "light", "default"], metavar="VARIANT")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--pairs", type=int, default=1, help="pairs of each variant, each on both cores in turn")
    parser.add_argument("--thread", action="store_true", help="the plain run has a second thread, which waits")
    given = parser.parse_args()
    print(heading("paired_overhead.py: what is added to a training of small steps"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        for variant in given.variants:
            sides = ("plain-waiting" if given.thread else "plain", variant)
            pairs = [_pair(script, sides, given.steps, swapped) for swapped in (False, True) * given.pairs]
            rows.append([variant, *_added(*(_mean(runs) for runs in zip(*pairs, strict=True)))])
    columns = [
        "variant",
        "first 30 steps",
        "to step 300",
        "after it",
        "of it the main thread",
        "parts from step 300 on",
    ]
    print(table(columns, rows))
    return 0


def _pair(script: Path, sides: tuple[str, str], steps: int, swapped: bool) -> tuple[Times, Times]:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    cores = (second, first) if swapped else (first, second)
    runs = [_start(script, kind, steps, core) for kind, core in zip(sides, cores, strict=True)]
    plain, watched = (_times(run) for run in runs)
    return plain, watched


def _start(script: Path, variant: str, steps: int, core: int) -> subprocess.Popen[str]:
    options = ["-c", variant] if variant.isidentifier() else variant.split(",")
    logdir = str(script.parent / "runs")
    tbmem = [] if variant in _ALONE else ["-m", "tbmem", "run", *options, "--logdir", logdir, "--"]
    command = [sys.executable, *tbmem, str(script), str(steps), variant, logdir]
    environment = {**environment_of_users(), "OMP_NUM_THREADS": "1"}
    pinned = ["taskset", "-c", str(core), *command]
    return subprocess.Popen(pinned, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def _times(run: subprocess.Popen[str]) -> Times:
    output = run.communicate()[0].split()
    return [(float(process), float(main)) for process, _, main in (part.partition(":") for part in output)]


def _mean(runs: Sequence[Times]) -> Times:
    means = ([statistics.mean(part) for part in zip(*parts, strict=True)] for parts in zip(*runs, strict=True))
    return [(process, main) for process, main in means]


def _added(plain: Times, watched: Times) -> list[str]:
    """Seconds added to the first steps of a run, and per cent to the later ones."""
    pairs = list(zip(plain, watched, strict=True))
    (began, ended), *later = pairs
    early, *settled = [100 * (with_it[0] / without[0] - 1) for without, with_it in later]
    main = [100 * (with_it[1] / without[1] - 1) for without, with_it in later[1:]]
    return [
        f"+{ended[0] - began[0]:.2f} s",
        f"{early:.1f} %",
        f"{statistics.mean(settled):.1f} %",
        f"{statistics.mean(main):.1f} %",
        ", ".join(f"{share:.1f}" for share in settled),
    ]


if __name__ == "__main__":
    sys.exit(main())
