"""Advice for the user, by the kind of a finding."""

from __future__ import annotations

from collections.abc import Mapping

from tbmem.config.schema import ProfilingConfig
from tbmem.model.finding import FindingKind

CONF = "PYTORCH_CUDA_ALLOC_CONF"
"""The variable that the CUDA allocator of every torch reads; 2.9's does not read PYTORCH_ALLOC_CONF."""

_WARMUP = ProfilingConfig().warmup
"""Steps in which the profiler warms up before the one that is to be recorded."""
LEAK_IN_WORKERS = (
    "a DataLoader worker keeps something: bound what the data set's __getitem__ and collate_fn store; if they store"
    " nothing, keep a list of many Python objects as one numpy array or tensor, because each worker gradually copies a"
    " list that it reads"
)
NEAR_CAPACITY_OF_HOST = (
    "reduce memory before it fails: activation checkpointing, a smaller batch with more gradient accumulation, shorter"
    " sequences, fewer DataLoader workers; a limit of the container or of ulimit counts as well"
)
ADVICE_ON_EVALUATION = (
    "smaller batches in evaluations need less; without torch.no_grad() they also keep what a backward pass would need"
)
ADVICE_ON_UNSHARDED = "with FSDP check for unsharded parameters"
"""Of a spike on an accelerator."""
ADVICE: Mapping[FindingKind, str] = {
    FindingKind.LEAK: (
        "something keeps memory of earlier steps: keep .item() or .detach() of outputs and losses, bound or clear lists"
        " and caches that hold tensors; if the workload itself grows, use smaller batches or checkpoint activations"
    ),
    FindingKind.SPIKE: (
        "examine such a step (a longer batch, a validation pass, a checkpoint); activation checkpointing lowers"
        " the peak"
    ),
    FindingKind.LEVEL_SHIFT: "expected after unfreezing layers, a larger batch or a longer sequence; otherwise"
    " examine that step",
    FindingKind.FRAGMENTATION: (
        f"set {CONF}=expandable_segments:True before the process starts; sizes that vary less (padding,"
        " buckets of lengths) help as well"
    ),
    FindingKind.NEAR_CAPACITY: (
        "reduce memory before it fails: activation checkpointing, a smaller batch with more gradient accumulation,"
        " shorter sequences, or the optimizer's state on the CPU (cpu_offload)"
    ),
    FindingKind.OOM: (
        "a smaller batch with more gradient accumulation, activation checkpointing or shorter sequences lower the peak"
    ),
}
"""A kind without an entry needs no advice."""


def recording_of(step: int) -> str:
    """The settings by which another run records a step, from 1: ``'profiling.wait=0 profiling.warmup=2 ...'``."""
    warmup = min(_WARMUP, step - 1)
    return f"profiling.wait=0 profiling.warmup={warmup} profiling.skip_first={step - 1 - warmup}"
