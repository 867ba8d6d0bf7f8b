"""How much the larger batches of a training need on the CPU, as tbmem says and as torch's profiler counts.

    python benchmarks/spike_sizes.py [--runs 3] [--steps 300]

Small models with steps of a few to some tens of milliseconds, in which three batches, unevenly apart, are larger; in
each order of their sizes, the largest first among them, whose memory malloc keeps for the others. The truth is the
highest sum of what torch's CPU allocator has handed out within one such step (``profile_memory=True``) beyond that of a
usual one, in a process of its own. A spike counts as found if a finding of the run covers its step.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise, permutations
from pathlib import Path
from statistics import median
from typing import Any

import torch
from harness import heading, table
from torch import nn
from torch.nn import functional as F

from tbmem import MemoryCallback
from tbmem.units import MIB

PLACES = (97, 141, 223)  # steps of the larger batches
USUAL = 1.0
SIZES = (6.0, 9.0, 12.0)  # of the larger batches, in usual ones
Step = Callable[[float], None]


def transformer() -> Step:
    """A language model on sequences of 8 times so many tokens."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    model = nn.Sequential(nn.Embedding(2000, 64), nn.TransformerEncoder(layer, 2), nn.Linear(64, 2000))
    optimizer = torch.optim.AdamW(model.parameters())

    def step(size: float) -> None:
        tokens = torch.randint(0, 2000, (int(8 * size), 32))
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def convolutions() -> Step:
    """An image classifier."""
    layers = [nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(size: float) -> None:
        images = torch.rand(int(8 * size), 3, 64, 64)
        F.cross_entropy(model(images), torch.randint(0, 10, (len(images),))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def long_sequences() -> Step:
    """Attention over sequences whose length varies, the usual ones too."""
    attention, head = nn.MultiheadAttention(64, 4, batch_first=True), nn.Linear(64, 64)
    optimizer = torch.optim.Adam([*attention.parameters(), *head.parameters()])

    def step(size: float) -> None:
        length = int(64 * size**0.5 * (1 if size > USUAL else torch.empty(1).uniform_(0.8, 1.1).item()))
        inputs = torch.rand(48, length, 64)
        F.mse_loss(head(attention(inputs, inputs, inputs)[0]), inputs).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def layers() -> Step:
    """Layers whose tensors of some mebibytes leave holes in malloc's heap: the resident peak is far above the need."""
    sizes = (128, 512, 512, 512)
    hidden = [part for inputs, outputs in pairwise(sizes) for part in (nn.Linear(inputs, outputs), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(512, 10))
    optimizer = torch.optim.Adam(model.parameters())

    def step(size: float) -> None:
        inputs = torch.randn(256 if size == USUAL else int(800 * size), 128)
        F.cross_entropy(model(inputs), torch.randint(0, 10, (len(inputs),))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


KINDS = {each.__name__: each for each in (transformer, convolutions, long_sequences, layers)}


def train(kind: str, sizes: tuple[float, ...], steps: int) -> None:
    """Train under tbmem, and print what it says of each step."""
    torch.manual_seed(1)
    step, larger = KINDS[kind](), dict(zip(PLACES, sizes, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        with MemoryCallback(run={"logdir": folder}, output={"console": False, "summary": False}) as memory:
            for number in range(1, steps + 1):
                step(larger.get(number, USUAL))
                memory.step()
        (verdict,) = memory.verdicts
        findings = [[each.first_step, each.last_step, each.evidence] for each in memory.findings]
        print(json.dumps({"spikes": findings, "worst": verdict.first_step, "kind": verdict.kind.value}))


def needs(kind: str) -> dict[float, int]:
    """Bytes that a step of each size allocates at its highest, as torch counts them."""
    torch.manual_seed(1)
    step, found = KINDS[kind](), {}
    for size in (USUAL, *SIZES) * 2:  # the second time the optimizer has its state
        step(USUAL)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
            step(size)
        kineto = profile.profiler.kineto_results
        events = [event for event in kineto.events() if event.name() == "[memory]"]
        level = highest = 0
        for event in sorted(events, key=lambda event: event.start_ns()):
            level += event.nbytes()
            highest = max(highest, level)
        found[size] = highest
    return found


def child(*arguments: object) -> Any:
    """What this script prints in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=600
    )
    return json.loads(done.stdout.splitlines()[-1])


def told(run: dict[str, Any], step: int) -> dict[str, Any] | None:
    """Evidence of the spike that covers a step."""
    return next((evidence for first, last, evidence in run["spikes"] if first <= step <= last), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="of each order of the three sizes")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--train", nargs=2, metavar=("KIND", "SIZES"), help=argparse.SUPPRESS)
    parser.add_argument("--truth", metavar="KIND", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        train(given.train[0], tuple(map(float, given.train[1].split(","))), given.steps)
        return 0
    if given.truth:
        print(json.dumps(list(needs(given.truth).items())))
        return 0
    rows = []
    for kind in KINDS:
        truth = dict(child("--truth", kind))
        spikes = found = right = runs = 0
        ratios, told_as = [], []
        for sizes in list(permutations(SIZES)) * given.runs:
            run = child("--train", kind, ",".join(map(str, sizes)), "--steps", given.steps)
            runs += 1
            right += run["kind"] == "spike" and run["worst"] == PLACES[sizes.index(max(sizes))]
            for step, size in zip(PLACES, sizes, strict=True):
                spikes += 1
                evidence = told(run, step)
                found += evidence is not None
                if evidence is None:
                    continue
                more = truth[size] - truth[USUAL]
                told_as.append(evidence.get("needed_bytes", evidence["height_bytes"]) / more)
                if "needed_bytes" in evidence:
                    ratios.append(evidence["needed_bytes"] / more)
        worst = f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else "-"
        middle = f"{median(ratios):.3f}" if ratios else "-"
        every = f"{min(told_as):.2f} to {max(told_as):.2f}" if told_as else "-"
        mib = ", ".join(f"{(truth[size] - truth[USUAL]) / MIB:.0f}" for size in SIZES)
        rows.append((kind, mib, f"{found} of {spikes}", f"{right} of {runs}", f"{len(ratios)}", middle, worst, every))
    print(heading("spike_sizes.py: three larger batches on the CPU"))
    header = (
        "model",
        "need more (MiB)",
        "found",
        "largest named",
        "seen by looks",
        "of the truth: median",
        "least, most",
        "all",
    )
    print(table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
