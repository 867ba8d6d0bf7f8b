"""Estimates against what really runs: the same training on fake and on real tensors of the CPU.

    python benchmarks/estimate_accuracy.py [--only NAME]

Both sides run the same loop. What counts is what the CPU's allocator hands out, unwatched, as torch.profiler sees it:
tensors, and what kernels take for themselves. Estimates do not count the latter: where a note says so, no limit holds.
Beside it are the bytes of real storages as operators make and drop them; while that is watched autograd adds gradients
out of place, which is undone in both.
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

import numpy as np
from harness import fake_run, heading, table

from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import MIB

CASES: dict[str, dict[str, Any]] = {
    "GPT": {"model": "gpt"},
    "GPT, tied weights": {"model": "tied_gpt"},
    "GPT, SGD": {"model": "gpt", "optimizer": "sgd"},
    "GPT, checkpointed": {"model": "gpt", "checkpoint": True},
    "GPT, bf16 autocast": {"model": "gpt", "amp": "bfloat16"},
    "GPT, foreach AdamW": {"model": "gpt", "implementation": "foreach"},
    "GPT, fused AdamW": {"model": "gpt", "implementation": "fused"},
    "GPT, clipped, bf16": {"model": "gpt", "clip": 1.0, "dtype": "bfloat16"},
    "GPT, accumulated": {"model": "gpt", "accumulate": 2, "batch": 2},
    "Llama with grouped heads": {"model": "llama_gqa"},
    "RMS norm, SiLU and Mish": {"model": "normed_decoder"},
    "encoder with dropout": {"model": "encoder"},
    "ViT": {"model": "vit"},
    "ResNet": {"model": "resnet"},
    "U-Net": {"model": "unet"},
    "LSTM": {"model": "lstm"},
    "MoE": {"model": "moe"},
    "LoRA": {"model": "lora"},
    "MLP": {"model": "mlp", "optimizer": "momentum"},
}
HERE = Path(__file__).parent


def job_of(case: dict[str, Any]) -> Job:
    return Job(**{**case, "model": f"estimate_models:{case['model']}"}, device="cpu", steps=2, search_path=str(HERE))


def real(job: Job) -> dict[str, float]:
    """Peaks of the steps on real tensors: by storages, and by torch.profiler."""
    import torch

    from tbmem.estimator.tracker.tracker import AllocationTracker
    from tbmem.estimator.workload.train_step import Training
    from tbmem.estimator.workload.workload import make_workload

    torch.manual_seed(0)
    workload = make_workload(job)
    tracker = AllocationTracker("cpu")
    log = tracker.log
    with tracker:
        for tensor in [*workload.model.parameters(), *workload.model.buffers()]:
            tracker.adopt(tensor)
        training = Training(job, workload, tracker)
        static = live_bytes(log)
        began = time.perf_counter()
        training.run()
    seconds = time.perf_counter() - began
    state = live_bytes(log) - static
    return {"storages": peak(log.run((), {})), "profiler": static + state + profiled(training), "seconds": seconds}


def live_bytes(log: Any) -> int:
    """Bytes that are allocated at the moment."""
    return sum(row.size for row in log.rows if row.free_event < 0)


def profiled(training: Any) -> float:
    """The peak of one more step above what was there when it began."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        training.step(training.job.steps)
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = [
            one["args"]
            for one in json.loads(Path(file.name).read_text())["traceEvents"]
            if one.get("name") == "[memory]"
        ]
    return float(max(one["Total Allocated"] for one in events) - events[0]["Total Allocated"] + events[0]["Bytes"])


def peak(run: SimulatedRun) -> int:
    """The most bytes alive at once."""
    change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum().max())


def mem_tracker(job: Job) -> float | None:
    """What torch's own MemTracker says of the same steps, on real tensors; ``None`` where it does not run."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker

    from tbmem.estimator.sweep import NullObserver
    from tbmem.estimator.workload.train_step import Training
    from tbmem.estimator.workload.workload import make_workload

    training = Training(job, make_workload(job), NullObserver())
    tracker = MemTracker()
    try:
        optimizer: Any = training.optimizer
        tracker.track_external(training.model, optimizer)
        with tracker:
            for number in range(job.steps):
                tracker.reset_mod_stats()
                training.step(number)
        return float(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])
    except Exception as error:
        print(f"MemTracker: {error!r}", file=sys.stderr)
        return None


def fake(job: Job) -> dict[str, float]:
    began = time.perf_counter()
    run = fake_run(job)
    naive = run.about["parameters"] * 16
    seconds = time.perf_counter() - began
    noted = any("is not counted" in note for note in run.notes)
    return {"peak": peak(run), "noted": noted, "naive": naive, "seconds": seconds}


def one(name: str) -> dict[str, Any]:
    """Both sides of a case, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", default="")
    arguments.add_argument("--one")
    given = arguments.parse_args()
    if given.one:
        job = job_of(CASES[given.one])
        print(json.dumps({"real": real(job), "fake": fake(job), "mem_tracker": mem_tracker(job)}))
        return 0
    rows, errors = [], []
    for name in CASES:
        if given.only in name:
            result = one(name)
            truth, estimate = result["real"]["profiler"], result["fake"]["peak"]
            storages, own = result["real"]["storages"], result["mem_tracker"]
            if not result["fake"]["noted"]:
                errors.append(abs(estimate / truth - 1))
            rows.append(
                [
                    name,
                    f"{truth / MIB:.2f}",
                    f"{estimate / MIB:.2f}",
                    f"{estimate / truth - 1:+.3%}",
                    f"{storages / MIB:.2f}",
                    f"{result['fake']['peak'] / storages - 1:+.3%}",
                    "does not run" if own is None else f"{own / truth - 1:+.2%}",
                    f"{result['fake']['naive'] / truth - 1:+.0%}",
                    f"{result['fake']['seconds']:.1f}",
                ]
            )
    print(heading("Estimated against real peaks on the CPU"))
    header = "training,real MiB,estimated MiB,error,storages MiB,error,MemTracker,16 bytes a parameter,seconds"
    print(table(header.split(","), rows))
    if not errors:
        return 0
    print(f"\nmedian {statistics.median(errors):.3%}, worst {max(errors):.3%} of {len(errors)}")
    return 0 if statistics.median(errors) <= 0.01 and max(errors) <= 0.03 else 1


if __name__ == "__main__":
    sys.exit(main())
