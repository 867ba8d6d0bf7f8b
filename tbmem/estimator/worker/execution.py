"""Runs a job's training on fake tensors; in a process of its own, since much of torch is patched."""

from __future__ import annotations

import functools
import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves

from tbmem.errors import UsageError
from tbmem.estimator.fake_tensors.attention import gpu_attention
from tbmem.estimator.fake_tensors.device_guard import install_guard
from tbmem.estimator.fake_tensors.fake_cuda import modules_that_move, not_traced, patched, pretend_cuda
from tbmem.estimator.fake_tensors.mode import FakeMode
from tbmem.estimator.fake_tensors.workspaces import register_gru
from tbmem.estimator.tracker.allocation_log import AllocationLog
from tbmem.estimator.tracker.caveats import notes_on
from tbmem.estimator.tracker.module_stack import ModuleStack
from tbmem.estimator.tracker.shape_checks import harmless_reads
from tbmem.estimator.tracker.tracker import AllocationTracker, counting
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import Subject, make_subject
from tbmem.model.category import Phase
from tbmem.model.job import Job
from tbmem.model.simulated_run import FakeRun

_flex_attention = importlib.import_module("torch._higher_order_ops.flex_attention")
"""Imported by name: its package has an operator of the same."""
_EAGER = "torch.compile was left out: memory is that of eager mode, which fused kernels need less of"
_FLEX = "flex_attention was counted as the kernel that torch.compile makes of it, which keeps no scores"
_WRAPPERS: dict[type, str] = {
    nn.parallel.DistributedDataParallel: (
        "cannot wrap fake tensors (its reducer reads addresses): return the plain model, --ddp N adds what DDP holds"
    ),
    FullyShardedDataParallel: (
        "(FSDP1) cannot wrap fake tensors (its flat parameters are views of real memory): return the plain model,"
        " --fsdp N shards it with FSDP2, whose states have the same size"
    ),
}
_not_compiled: dict[str, None] = {}
"""Notes on compiled code that ran. Of the process: a module that one job has imported is the next one's, too."""


def execute(job: Job) -> FakeRun:
    """Run a job's steps on fake tensors."""
    began = time.perf_counter()
    with ExitStack() as stack:
        kernels: set[str] = set()
        _patch_torch(job, stack, kernels)
        mode = stack.enter_context(FakeMode(allow_non_fake_inputs=True))
        modules = ModuleStack()
        capability = job.capability if job.device == "cuda" else None
        tracker = AllocationTracker(AllocationLog(), job.device, mode, modules, capability)
        # which only tries functions of scores out
        trace = counting(_flex_attention.create_fw_bw_graph, tracker, "paused")
        stack.enter_context(patched(_flex_attention, "create_fw_bw_graph", trace))
        stack.enter_context(patched(torch.UntypedStorage, "resize_", _seen(torch.UntypedStorage.resize_, tracker)))
        training = _train(job, stack, tracker, modules)
        about = _about(job, training, kernels, time.perf_counter() - began)
        notes = (*notes_on(job, training, tracker, about["dtype"]), *_not_compiled)
        return tracker.log.run(notes, about)


def _patch_torch(job: Job, stack: ExitStack, kernels: set[str]) -> None:
    if job.device == "cuda":
        install_guard()
        register_gru()
        stack.enter_context(pretend_cuda(job.world_size, job.capability, job.total))
        stack.enter_context(gpu_attention(job.capability, kernels))
    stack.enter_context(modules_that_move())
    _not_compiled.clear()
    stack.enter_context(patched(torch, "compile", _compile))
    for wrapper, why in _WRAPPERS.items():
        stack.enter_context(patched(wrapper, "__init__", _refused(wrapper.__name__, why)))
    # torch's choices for plain tensors are those for fake ones
    like_plain = [*_foreach_utils._foreach_supported_types, FakeTensor]
    stack.enter_context(patched(_foreach_utils, "_foreach_supported_types", like_plain))
    if job.world_size > 1:
        from tbmem.estimator.parallel.fake_ranks import one_of_many

        stack.enter_context(one_of_many(job))


def _compile(model: Any = None, **_: Any) -> Any:
    """torch.compile that leaves everything as it is, and says so of what runs."""
    if model is None:
        return _compile
    note = _FLEX if getattr(model, "__name__", "").startswith("_flex_attention") else _EAGER
    if isinstance(model, nn.Module):
        _not_compiled[note] = None
        return model

    @functools.wraps(model)
    def run(*args: Any, **kwargs: Any) -> Any:
        _not_compiled[note] = None
        return model(*args, **kwargs)

    return run


def _refused(name: str, why: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(f"{name} {why}")

    return refuse


def _seen(resize: Callable[..., Any], tracker: AllocationTracker) -> Callable[..., Any]:
    """The tracker sees storages that get another size, which no operator does."""

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        tracker.resized(storage)
        return result

    return resize_


def _train(job: Job, stack: ExitStack, tracker: AllocationTracker, modules: ModuleStack) -> Training:
    stack.enter_context(tracker)
    stack.enter_context(harmless_reads(tracker))
    subject = _built(job, tracker)
    stack.enter_context(not_traced())
    stack.enter_context(modules)
    if job.device == "cpu":
        # it is on the device already
        for tensor in chain(subject.model.parameters(), subject.model.buffers()):
            tracker.adopt(tensor)
    called = type(subject.model).__name__
    training = _training(job, subject, tracker, stack)
    modules.name(training.model, called)
    training.run()
    tracker.log.phase = Phase.OTHER
    return training


def _training(job: Job, subject: Subject, tracker: AllocationTracker, stack: ExitStack) -> Training:
    if job.world_size == 1:
        return Training(job, subject, tracker)
    from tbmem.estimator.parallel.fake_ranks import distributed_tensors
    from tbmem.estimator.parallel.rank_training import RankTraining

    stack.enter_context(distributed_tensors(tracker))
    return RankTraining(job, subject, tracker, tracker)


def _built(job: Job, tracker: AllocationTracker) -> Subject:
    """The model on the host: nothing counts yet, and what its initialization reads of values decides nothing."""
    tracker.paused += 1
    subject = make_subject(job)
    tracker.paused -= 1
    tracker.reads.clear()
    tracker.taken.clear()
    tracker.values.batch_is_made = True
    if not subject.has_values:
        tracker.values.forget(tree_leaves(subject.batch))
    return subject


def _about(job: Job, training: Training, kernels: set[str], seconds: float) -> dict[str, Any]:
    parameters = list(training.model.parameters())
    return {
        "torch": str(torch.__version__),
        "device": job.device,
        "seconds": seconds,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "dtype": _commonest(parameters),
        "architecture": training.subject.architecture,
        "attention": sorted(kernels),
    }


def _commonest(parameters: Iterable[nn.Parameter]) -> str:
    """The type that most bytes of parameters have."""
    sizes: Counter[str] = Counter()
    for parameter in parameters:
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel() * parameter.element_size()
    return max(sizes, key=sizes.__getitem__, default="")
