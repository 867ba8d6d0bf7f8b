"""Healthy loops that evaluate every few steps: how often tbmem calls one anything but stable.

    python benchmarks/evaluations.py [--series 400] [--runs 8] [--json]

Two families. Series are made up (period 8 to 100, first evaluation at the first step, after the first period or
anywhere, a peak of 2 to 200 % above the training's, what libraries keep of the first one, batches of even or varying
size, with and without profiler windows, on the CPU and on a device with exact peaks) and judged by the detector. Runs
are real trainings on the CPU (kinds of models and optimizers, sizes of batches, periods), each in a process of its own
under MemoryCallback. Each lasts for three evaluations that are judged, or more.

Exit status: 0 if every verdict is STABLE.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import heading, table

from tbmem.analysis.detector.detector import judge
from tbmem.model.sample import MemorySample

MIB = 1 << 20
WINDOWS = frozenset((4, 5, 6, 10, 11, 12))
"""Steps of the default configuration's windows."""
DUES = ("first step", "after a period", "anywhere")


class Case(NamedTuple):
    """A made-up loop that evaluates."""

    device: str
    windows: bool
    due: str
    period: int
    first: int
    height: float
    """The evaluation's peak above a training step's, as a share of it."""
    kept: float
    """What libraries keep of the first evaluation, as a share of the level."""
    noise: float
    """How far a batch's size moves a step's peak, as a share of it."""


def cases(count: int) -> Iterator[tuple[Case, random.Random]]:
    """The family's members, the same each time."""
    for seed in range(count):
        dice = random.Random(seed)
        period, due = dice.randint(8, 100), DUES[seed % len(DUES)]
        first = {"first step": 1, "after a period": period}.get(due) or dice.randint(2, period)
        yield (
            Case(
                device="cpu" if seed % 2 else "cuda:0",
                windows=seed % 4 < 2,
                due=due,
                period=period,
                first=first,
                height=10 ** dice.uniform(-1.7, 0.3),
                kept=dice.choice((0.0, 0.0, dice.uniform(0.0, 0.05))),
                noise=dice.choice((0.0, 0.002, 0.01)),
            ),
            dice,
        )


def series(case: Case, dice: random.Random) -> list[MemorySample]:
    """What the monitor would read in such a loop."""
    level = round(10 ** dice.uniform(8, 10))
    work = round(level * dice.uniform(0.2, 1.5))
    steps = max(case.first + 4 * case.period + dice.randint(1, case.period), 48)
    kept, samples = 0, []
    for step in range(1, steps + 1):
        evaluates = step >= case.first and (step - case.first) % case.period == 0
        if evaluates and not kept:
            kept = round(case.kept * level)
        peak = level + kept + round(work * (1 + case.noise * dice.uniform(-1, 1)))
        if evaluates:
            peak += round(case.height * work * dice.uniform(0.97, 1.03))
        on_cpu, profiled = case.device == "cpu", case.windows and step in WINDOWS
        profiler = 80 * MIB if profiled and on_cpu else 0
        samples.append(
            MemorySample(
                step=step,
                time=1e9 + step / 10,
                device=case.device,
                allocated=level + kept + profiler,
                reserved=2 * level + 4 * work + profiler,
                peak_allocated=None if on_cpu else peak,
                host_rss=3 * level if on_cpu else None,
                host_peak_rss=peak + (level + 4 * work - kept) if on_cpu else None,
                updated=True,
                profiled=profiled,
            )
        )
    return samples


class Run(NamedTuple):
    """A real training that evaluates."""

    model: str
    optimizer: str
    period: int
    first: int
    batch: int
    eval_batch: int
    batches: int = 4
    windows: bool = True


RUNS = (
    Run("mlp", "Adam", 30, 30, 64, 4096),
    Run("mlp", "SGD", 30, 1, 32, 2048),
    Run("cnn", "SGD", 30, 30, 64, 512),
    Run("transformer", "AdamW", 25, 25, 8, 128),
    Run("mlp", "AdamW", 10, 10, 256, 8192),
    Run("mlp", "Adam", 60, 41, 64, 4096, windows=False),
    Run("cnn", "Adam", 100, 100, 16, 256, batches=1),
    Run("mlp", "RMSprop", 17, 5, 64, 512, batches=16),
    Run("cnn", "Adam", 30, 30, 32, 64, batches=8),
    Run("transformer", "SGD", 40, 1, 8, 32, windows=False),
    Run("mlp", "Adam", 100, 1, 64, 4096),
    Run("mlp", "Adam", 50, 50, 64, 1024, batches=1, windows=False),
)


def train(run: Run, logdir: str) -> dict[str, Any]:
    """One real training under MemoryCallback, in this process."""
    import torch

    from tbmem import MemoryCallback

    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, make = _model(run.model)
    optimizer = getattr(torch.optim, run.optimizer)(model.parameters(), lr=1e-4)
    steps = run.first + 3 * run.period + 10
    profiling = {} if run.windows else {"profiling": {"enabled": False}}
    with MemoryCallback(run={"logdir": logdir}, output={"console": False}, **profiling) as memory:
        for step in range(1, steps + 1):
            optimizer.zero_grad()
            model(make(run.batch)).square().mean().backward()
            optimizer.step()
            if step >= run.first and (step - run.first) % run.period == 0:
                with torch.no_grad():
                    sum(model(make(run.eval_batch)).square().mean().item() for _ in range(run.batches))
            memory.step()
    summary = memory.summary
    assert summary is not None
    told = [f"{each.kind.value} in step {each.first_step}" for each in summary.findings]
    return {"verdict": summary.verdicts[0].kind.value, "message": summary.verdicts[0].message, "told": told}


def _model(kind: str) -> tuple[Any, Any]:
    import torch
    from torch import nn

    if kind == "cnn":
        body = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
        model = nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        return model, lambda batch: torch.randn(batch, 3, 32, 32)
    if kind == "transformer":
        layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
        return nn.TransformerEncoder(layer, 2), lambda batch: torch.randn(batch, 32, 128)
    layers = [layer for _ in range(2) for layer in (nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256))]
    return nn.Sequential(*layers), lambda batch: torch.randn(batch, 256)


def run_alone(number: int) -> dict[str, Any]:
    """A real training in a process of its own."""
    import tempfile

    paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    with tempfile.TemporaryDirectory() as logdir:
        command = [sys.executable, __file__, "--one", str(number), "--logdir", logdir]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    lines = ended.stdout.splitlines()
    if ended.returncode or not lines:
        return {"verdict": "crash", "message": (ended.stderr.strip().splitlines() or ["no output"])[-1], "told": []}
    return dict(json.loads(lines[-1]))


def judged(count: int) -> list[dict[str, Any]]:
    """The verdicts on the made-up series."""
    rows = []
    for case, dice in cases(count):
        findings = judge(series(case, dice))
        told = [f"{each.kind.value} in step {each.first_step}" for each in findings[:-1]]
        rows.append({"case": case._asdict(), "verdict": findings[-1].kind.value, "told": told})
    return rows


def show(made_up: Sequence[dict[str, Any]], real: Sequence[tuple[Run, dict[str, Any]]]) -> None:
    """Print the result as Markdown."""
    print(heading(f"evaluations.py: {len(made_up)} series and {len(real)} runs that evaluate every few steps"))
    print(f"series: {dict(Counter(row['verdict'] for row in made_up))}\n")
    for row in made_up:
        if row["verdict"] != "stable":
            print(row["case"], row["verdict"], row["told"])
    rows = [[*run[:-1], "on" if run.windows else "off", told["verdict"], ", ".join(told["told"])] for run, told in real]
    print(
        table(["model", "optimizer", "period", "first", "batch", "evaluated", "batches", "windows", "", "told"], rows)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=400, help="made-up series")
    parser.add_argument("--runs", type=int, default=len(RUNS), help=f"real trainings, at most {len(RUNS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--logdir", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(train(RUNS[given.one], given.logdir)))
        return 0
    made_up = judged(given.series)
    real = [(run, run_alone(number)) for number, run in enumerate(RUNS[: given.runs])]
    if given.json:
        print(json.dumps({"series": made_up, "runs": [{**run._asdict(), **told} for run, told in real]}, indent=1))
    else:
        show(made_up, real)
    return 0 if all(row["verdict"] == "stable" for row in [*made_up, *(told for _, told in real)]) else 1


if __name__ == "__main__":
    sys.exit(main())
