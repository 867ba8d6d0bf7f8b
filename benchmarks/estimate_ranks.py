"""Estimates of one rank of several against ranks that really run: processes on this machine's CPU, joined by gloo.

    python benchmarks/estimate_ranks.py [--only NAME]

The real side is torch's own: DistributedDataParallel, fully_shard, parallelize_module, PipelineStage and its schedules.
What counts is the most that the CPU's allocator had handed out in two steps, as torch.profiler sees it in each process.
Only experts are the built-in decoder's on both sides, since torch has none, and what their ranks share is not reduced
on the real side: the estimate is higher by its buckets. gloo copies what it reduces and scatters
(``ProcessGroupGloo.cpp``, ``reduce_scatter_tensor_coalesced``), which no GPU's library does: FSDP2 takes some buffers
of a layer's gradients more here, as many as are under way, and no two runs are alike.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from harness import heading, table
from torch import nn

from tbmem.estimator.worker import simulate_jobs
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import MIB

DENSE: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 688,
    "vocab_size": 4000,
    "max_position_embeddings": 256,
}
EXPERTS: dict[str, Any] = {**DENSE, "model_type": "mixtral", "num_local_experts": 4, "num_hidden_layers": 4}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "DDP 2": (DENSE, {"replicate": 2}),
    "DDP 2, accumulated": (DENSE, {"replicate": 2, "accumulate": 2}),
    "FSDP2 2": (DENSE, {"fsdp": 2}),
    "FSDP2 4": (DENSE, {"fsdp": 4}),
    "FSDP2 2, checkpointed": (DENSE, {"fsdp": 2, "checkpoint": True}),
    "FSDP2 2, bf16 policy": (DENSE, {"fsdp": 2, "amp": "bfloat16"}),
    "HSDP 2 x 2": (DENSE, {"fsdp": 2, "replicate": 2}),
    "TP 2": (DENSE, {"tensor": 2}),
    "TP 2 x FSDP2 2": (DENSE, {"tensor": 2, "fsdp": 2}),
    "1F1B 2": (DENSE, {"pipeline": 2, "microbatches": 4}),
    "GPipe 2": (DENSE, {"pipeline": 2, "microbatches": 4, "schedule": "gpipe"}),
    "1F1B 4": (DENSE, {"pipeline": 4, "microbatches": 8}),
    "1F1B 2 x FSDP2 2": (DENSE, {"pipeline": 2, "microbatches": 4, "fsdp": 2}),
    "EP 2": (EXPERTS, {"expert": 2}),
    "EP 2 x FSDP2 2": (EXPERTS, {"expert": 2, "fsdp": 2}),
}
STEP = "step of the benchmark"


def job_of(config: dict[str, Any], change: dict[str, Any], folder: Path) -> Job:
    path = folder / f"{config['model_type']}.json"
    path.write_text(json.dumps(config))
    ranks = int(np.prod([change.get(name, 1) for name in ("replicate", "fsdp", "tensor", "pipeline", "expert")]))
    return Job(model=str(path), batch=8, sequence=128, device="cpu", steps=2, world_size=ranks, **change)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--only", help="one case")
    only = arguments.parse_args().only
    print(heading("estimate_ranks.py: estimates beside ranks that really run"))
    rows = [row for name, case in CASES.items() if only in (None, name) for row in rows_of(name, *case)]
    print(table(["training", "rank", "measured MiB", "estimated MiB", "error"], rows))


def rows_of(name: str, config: dict[str, Any], change: dict[str, Any]) -> list[tuple[str, ...]]:
    with tempfile.TemporaryDirectory() as folder:
        job = job_of(config, change, Path(folder))
        runs = simulate_jobs([replace(job, rank=rank) for rank in range(job.world_size)])
        torch.multiprocessing.spawn(work, (job, folder), job.world_size)
        measured = [float(Path(folder, f"{rank}.txt").read_text()) for rank in range(job.world_size)]
    rows: list[tuple[str, ...]] = []
    for rank, (real, run) in enumerate(zip(measured, runs, strict=True)):
        if not isinstance(run, SimulatedRun):
            sys.exit(f"{name}: {run}")
        estimated = peak(run)
        error = f"{100 * (estimated / real - 1):+.2f} %"
        rows.append((name, str(rank), f"{real / MIB:.1f}", f"{estimated / MIB:.1f}", error))
    return rows


def peak(run: SimulatedRun) -> int:
    """The most bytes alive at once in the steps."""
    change = np.zeros(max(run.alloc_event.max(), run.free_event.max()) + 1, dtype=np.int64)
    ended = run.free_event >= 0
    np.add.at(change, run.alloc_event, run.size)
    np.add.at(change, run.free_event[ended], -run.size[ended])
    return int(change.cumsum()[run.about["step_starts"][0] :].max())


def work(rank: int, job: Job, folder: str) -> None:
    """One rank, in a process of its own: writes its peak."""
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=job.world_size)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        step = step_of(replace(job, rank=rank))
        for _ in range(job.steps):
            with torch.profiler.record_function(STEP):
                step()
    trace = Path(folder, f"{rank}.json")
    profiler.export_chrome_trace(str(trace))
    Path(folder, f"{rank}.txt").write_text(str(highest(json.loads(trace.read_text())["traceEvents"])))
    dist.destroy_process_group()


def highest(events: list[dict[str, Any]]) -> int:
    """The most bytes since the first step, counted from when the profiler began."""
    began = min(one["ts"] for one in events if one.get("name") == STEP)
    memory = sorted((one for one in events if one.get("name") == "[memory]"), key=lambda one: one["ts"])
    before = memory[0]["args"]["Total Allocated"] - memory[0]["args"]["Bytes"]
    return max(one["args"]["Total Allocated"] for one in memory if one["ts"] >= began) - before


def step_of(job: Job) -> Any:
    """A step of the job as torch's own classes do it."""
    from torch.distributed.device_mesh import init_device_mesh

    from tbmem.estimator.workload.train_step import _enable_checkpointing
    from tbmem.estimator.workload.workload import make_workload

    # nothing is allocated on a GPU before the model is divided
    with torch.device("meta" if job.device == "cuda" else job.device):
        workload = make_workload(job)
    model, batch = workload.model, [torch.zeros_like(leaf, device="cpu") for leaf in workload.batch]
    numbers, targets = batch[0], batch[-1]
    sizes = {name: getattr(job, name) for name in ("pipeline", "replicate", "fsdp", "expert", "tensor")}
    mesh = init_device_mesh(job.device, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    for layer in model.layers if job.checkpoint else ():
        _enable_checkpointing(layer)
    if job.pipeline > 1:
        keep_stage(model, job, mesh["pipeline"].get_local_rank())
    if job.expert > 1:
        for layer in model.layers:
            layer.feed_forward.divide(mesh["expert"].get_group(), job.expert, job.imbalance)
    if job.tensor > 1:
        divide(model, mesh["tensor"])
    if job.fsdp > 1:
        shard(model, mesh["replicate", "fsdp"] if job.replicate > 1 else mesh["fsdp"], job)
    if job.device == "cuda":
        model.to_empty(device="cuda")
    if job.fsdp == 1 and job.replicate > 1:
        alone = job.device == "cuda"
        model = nn.parallel.DistributedDataParallel(model, init_sync=not alone)
        if alone:
            model.register_comm_hook(None, lambda _, bucket: answered(bucket.buffer()))
    if job.pipeline > 1:
        return pipelined(model, job, mesh, numbers, targets)
    # foreach takes no mixture of divided and whole parameters
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False if job.tensor > 1 and job.fsdp == 1 else None)

    def step() -> None:
        for part in range(job.accumulate):
            last = part == job.accumulate - 1
            if isinstance(model, nn.parallel.DistributedDataParallel):
                model.require_backward_grad_sync = last
            given = numbers.to(job.device, copy=True)
            wanted = given if targets is numbers else targets.to(job.device, copy=True)
            loss = F.cross_entropy(model(given).flatten(0, 1), wanted.flatten()) / job.accumulate
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def answered(gradients: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
    """Gradients as if the other ranks had added theirs."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(gradients)
    return future


def keep_stage(model: Any, job: Job, stage: int) -> None:
    each = len(model.layers) // job.pipeline
    model.layers = model.layers[stage * each : (stage + 1) * each]
    if stage > 0:
        model.tokens = nn.Identity()
    if stage < job.pipeline - 1:
        model.norm = model.output = nn.Identity()


def divide(model: nn.Module, mesh: Any) -> None:
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    for layer in model.layers:
        columns = ("attention.query", "attention.key", "attention.value", "feed_forward.gate", "feed_forward.up")
        plan: dict[str, Any] = {name: ColwiseParallel() for name in columns}
        plan |= {name: RowwiseParallel() for name in ("attention.out", "feed_forward.down")}
        parallelize_module(layer, mesh, plan)
    ends = {"tokens": RowwiseParallel(input_layouts=Replicate()), "output": ColwiseParallel(output_layouts=Replicate())}
    parallelize_module(model, mesh, ends)


def shard(model: nn.Module, mesh: Any, job: Job) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if job.amp else MixedPrecisionPolicy()
    for part in (*model.layers, model):
        fully_shard(part, mesh=mesh, mp_policy=policy)


def pipelined(model: Any, job: Job, mesh: Any, numbers: torch.Tensor, targets: torch.Tensor) -> Any:
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    number = mesh["pipeline"].get_local_rank()
    first, last = number == 0, number == job.pipeline - 1
    sizes = (model.shape.width, model.shape.vocabulary)
    hidden, logits = (torch.empty(*numbers.shape, size, device="meta", requires_grad=True) for size in sizes)
    group = mesh["pipeline"].get_group()
    # shapes are given: without them the stages would ask each other
    shapes = {"input_args": numbers.to("meta") if first else hidden, "output_args": logits if last else hidden}
    stage = PipelineStage(model, number, job.pipeline, torch.device(job.device), group=group, **shapes)
    kind = ScheduleGPipe if job.schedule == "gpipe" else Schedule1F1B
    schedule = kind(stage, job.parts, loss_fn=lambda out, wanted: F.cross_entropy(out.flatten(0, 1), wanted.flatten()))
    optimizer = torch.optim.AdamW(model.parameters())
    numbers, targets = numbers.repeat(job.parts, 1), targets.repeat(job.parts, 1)

    def step() -> None:
        given = [numbers.to(job.device, copy=True)] if first else []
        wanted = targets.to(job.device, copy=True) if last else None
        schedule.step(*given, target=wanted, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
