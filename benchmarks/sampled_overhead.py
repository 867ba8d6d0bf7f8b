"""Which part of the processor time of public programs is tbmem's, as a sampling profiler sees it from outside.

    python benchmarks/sampled_overhead.py FOLDER [--seconds 70] [--config FILE] [--only NAME]

FOLDER has the checkouts of ``programs.py``, whose long programs are run for so many seconds under ``tbmem run``, each
on one core. py-spy (``pip install py-spy``) looks 200 times a second, from the first moment on, at what each running
thread of the process does. It has another core: on the program's it is let in where that calls the kernel, as tbmem
does at the end of a step, and sees that far too often. A sample is tbmem's where the program has called into it or one
of its threads is running:

- start and end: imports, without torch's own, which the program needs too, and the summary;
- steps: what the program waits for at the end of a step, a profiler window's end by torch among it;
- threads: those that write and that look at memory.

Processor times of two runs, one beside the other, tell the same with less certainty: two plain runs of one program
differ by some per cent on a machine that is shared (``programs.py --long --together``). What is not seen here is how
much slower the program's own code is in recorded steps, and by what tbmem leaves in the caches.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from harness import heading, table
from program_recipes import LONG, Recipe
from programs import absent, prepared, run, under_tbmem

import tbmem

PACKAGE = str(Path(tbmem.__file__).parent)
PARTS = ("start and end", "steps", "threads")
PROGRAM = "program"
_RATE = 200  # samples a second
_RUNS_THE_SCRIPT = f"run ({PACKAGE}/runtime/launch/script.py"
_STARTS = f"{PACKAGE}/cli/launch.py"
_TORCH = "/torch/__init__.py"
_OPTIMIZERS = "/torch/optim/"
"""What tbmem never calls: a stack with it below tbmem is put together of two moments, as the program is not stopped."""
_WAITS = re.compile(r"\bwait \(")
"""The function in which a thread is that waits, which py-spy takes for running now and then."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, metavar="FOLDER")
    parser.add_argument("--seconds", type=float, default=70)
    parser.add_argument("--config", type=Path, help="tbmem's configuration, such as configs/light.yaml")
    parser.add_argument("--only", default="", help="programs whose name contains it")
    given = parser.parse_args()
    profiler = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if profiler is None:
        print("sampled_overhead.py: there is no py-spy: pip install py-spy", file=sys.stderr)
        return 2
    rows, shares = [], []
    for recipe in LONG:
        if given.only in recipe.title and not absent(recipe, given.checkouts):
            samples = sampled(recipe, given.checkouts, given.seconds, given.config, profiler)
            total = samples.total()
            each = [samples[part] / max(total, 1) for part in PARTS]
            share = sum(each)
            error = math.sqrt(share / max(total, 1))
            rows.append([recipe.title, total, *map(_percent, each), f"{_percent(share)} ± {100 * error:.1f}"])
            shares.append(share)
            print(*rows[-1], sep=" · ", file=sys.stderr)
    print(heading("sampled_overhead.py: the part of public programs' processor time that is tbmem's"))
    print(table(["program", "samples", *PARTS, "all"], rows))
    if shares:
        print(f"\nmedian {_percent(statistics.median(shares))}, most {_percent(max(shares))}")
    return 0


def sampled(recipe: Recipe, checkouts: Path, seconds: float, config: Path | None, profiler: str) -> Counter[str]:
    """Samples of a program under ``tbmem run`` by whose work they show."""
    with tempfile.TemporaryDirectory() as name:
        folder, stacks = prepared(recipe, checkouts, Path(name)), Path(name) / "stacks"
        watched = under_tbmem(Path(name) / "runs", config)
        record = ["record", "--nonblocking", "--full-filenames", "--rate", str(_RATE), "--format", "raw"]
        cores = sorted(os.sched_getaffinity(0))
        sampler, program = (["taskset", "--cpu-list", str(core)] for core in (cores[-1], cores[0]))
        run(recipe, folder, [*sampler, profiler, *record, "--output", str(stacks), "--", *program, *watched], seconds)
        return counted(stacks.read_text().splitlines())


def counted(lines: Iterable[str]) -> Counter[str]:
    """Samples by whose work they show, from lines with a stack, its frames from outside to inside, and a number."""
    samples: Counter[str] = Counter()
    for line in lines:
        stack, _, number = line.rpartition(" ")
        samples[part_of(stack.split(";"))] += int(number)
    return samples


def part_of(frames: Sequence[str]) -> str:
    """Whose work a stack of frames such as ``Model.step (/a/file.py:3)`` shows."""
    running = [at for at, frame in enumerate(frames) if _RUNS_THE_SCRIPT in frame]
    inside = frames[running[-1] + 1 :] if running else frames
    called = next((at for at, frame in enumerate(inside) if PACKAGE in frame), None)
    if called is None:
        return PROGRAM
    if running:
        return PROGRAM if any(_OPTIMIZERS in frame for frame in inside[called:]) else "steps"
    if any(_STARTS in frame for frame in frames):
        return PROGRAM if any(_TORCH in frame for frame in frames) else "start and end"
    if "_bootstrap" not in frames[0]:
        return "start and end"
    return PROGRAM if _WAITS.search(frames[-1]) else "threads"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(main())
