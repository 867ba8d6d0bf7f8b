"""How fast snapshots and traces are read, as ratios within one run; run as ``python benchmarks/readers.py``.

Snapshots are set against a bare ``pickle.load`` of the same file (which refuses nothing and says nothing), traces
against what torch-tb-profiler does before it can show its memory view. Each measurement is a process of its own, so
that its memory is its own; of several in turn the fastest counts.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import heading, table

PROJECT = Path(__file__).parent.parent
CORPUS = Path(os.environ.get("TBMEM_CORPUS", PROJECT.parent / "shared" / "corpus"))
MILLION = 1_000_000
TURNS = 5


def bare_pickle(path: str) -> Callable[[], object]:
    return lambda: _load(path)


def _load(path: str) -> object:
    with open(path, "rb") as file:
        return pickle.load(file)


def tbmem_snapshot(path: str) -> Callable[[], object]:
    """Opened, peak found, and what was alive there put down to its stacks."""
    import numpy as np

    from tbmem.sources.snapshot.reader import read_snapshot

    def read() -> object:
        timeline = read_snapshot(path)
        alive = timeline.alive_at(0, timeline.peak(0).event)
        by_stack = np.zeros(len(timeline.stacks) + 1, np.int64)
        np.add.at(by_stack, timeline.rows.stack[alive], timeline.rows.bytes[alive])
        return timeline, [timeline.stacks.of(int(stack)) for stack in np.argsort(-by_stack[:-1])[:10]]

    return read


def tbmem_trace(path: str) -> Callable[[], object]:
    from tbmem.sources.trace.reader import read_trace

    def read() -> object:
        timeline = read_trace(path)
        return timeline, [timeline.peak(device) for device in range(len(timeline.devices))]

    return read


def tb_profiler(path: str) -> Callable[[], object]:
    from torch_tb_profiler.profiler.data import RunProfileData

    def read() -> object:
        data = RunProfileData.parse("worker", "span", path, tempfile.gettempdir())
        data.process()
        return data

    return read


READERS = {one.__name__: one for one in (bare_pickle, tbmem_snapshot, tbmem_trace, tb_profiler)}


def work(reader: str, path: str) -> None:
    """In a process of its own: read once, print seconds and memory."""
    read = READERS[reader](path)
    wall, cpu = time.perf_counter(), time.process_time()
    kept = read()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert kept is not None
    print(json.dumps({"wall": wall, "cpu": cpu, "mib": _peak_mib()}))


def _peak_mib() -> float:
    """Resident peak of this program (getrusage would count its parent's, too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure(readers: tuple[str, str], path: Path) -> list[dict[str, float]]:
    """Both in turn, the best of each."""
    results: dict[str, list[dict[str, float]]] = {reader: [] for reader in readers}
    for _ in range(TURNS):
        for reader in readers:
            command = [sys.executable, __file__, "--work", reader, str(path)]
            environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            results[reader].append(json.loads(done.stdout.splitlines()[-1]))
    return [{key: min(one[key] for one in results[reader]) for key in ("wall", "cpu", "mib")} for reader in readers]


def compare(name: str, readers: tuple[str, str], path: Path, *, faster: bool) -> list[object]:
    """A line of the table; the ratio is ours by theirs, or for speed theirs by ours."""
    theirs, ours = measure(readers, path)
    ratios = [theirs[key] / ours[key] if faster else ours[key] / theirs[key] for key in ("wall", "cpu")]
    return [
        name,
        f"{1000 * theirs['wall']:.0f} ms",
        f"{1000 * ours['wall']:.0f} ms",
        f"{ratios[0]:.2f} ({ratios[1]:.2f} in CPU time)",
        f"{theirs['mib']:.0f} MiB",
        f"{ours['mib']:.0f} MiB",
        f"{ours['mib'] / theirs['mib']:.2f}",
    ]


def tiled(path: Path, events: int, place: Path) -> Path:
    """A snapshot's log again and again, later each time, until it has so many events; stacks stay shared."""
    with open(path, "rb") as file:
        snapshot: dict[str, Any] = pickle.load(file)
    log = snapshot["device_traces"][0]
    span = log[-1]["time_us"] - log[0]["time_us"] + 1
    rounds = -(-events // len(log))
    many = [{**event, "time_us": event["time_us"] + turn * span} for turn in range(rounds) for event in log]
    snapshot["device_traces"][0] = many[:events]
    with open(place, "wb") as file:
        pickle.dump(snapshot, file, protocol=4)
    return place


def recorded(place: Path, steps: int) -> Path:
    """A trace with Python stacks, as tbmem records them: mostly Python calls."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters())
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True) as window:
        for step in range(steps):
            with record_function(f"ProfilerStep#{step}"):
                model(torch.randn(8, 64, 128)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    window.export_chrome_trace(str(place))
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs=2, metavar=("READER", "FILE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return
    if not CORPUS.is_dir():
        sys.exit(f"no corpus at {CORPUS}: set TBMEM_CORPUS")
    with tempfile.TemporaryDirectory() as folder:
        report(Path(folder))


def report(folder: Path) -> None:
    columns = ["time", "tbmem's", "ratio", "memory", "tbmem's", "ratio"]
    print(heading("readers.py: snapshots and traces opened"))
    largest = max((CORPUS / "snapshots").iterdir(), key=lambda path: path.stat().st_size)
    against = ("bare_pickle", "tbmem_snapshot")
    million = tiled(largest, MILLION, folder / "million.pickle")
    rows = [
        compare("22 thousand events", against, largest, faster=False),
        compare("1 million events", against, million, faster=False),
    ]
    print(table(["snapshot, against pickle.load", *columns], rows), end="\n\n")
    operators = max((CORPUS / "traces").iterdir(), key=lambda path: path.stat().st_size)
    calls = recorded(folder / "calls.pt.trace.json", steps=12)
    against = ("tb_profiler", "tbmem_trace")
    rows = [
        compare(name, against, path, faster=True)
        for name, path in (
            ("35 MB of operators and kernels (2021)", operators),
            (f"{calls.stat().st_size / 1e6:.0f} MB, mostly Python calls (torch {_torch_version()})", calls),
        )
    ]
    print(table(["trace, against torch-tb-profiler", *columns], rows))


def _torch_version() -> str:
    import torch

    return torch.__version__


if __name__ == "__main__":
    main()
