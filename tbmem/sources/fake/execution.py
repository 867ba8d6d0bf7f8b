"""A job goes in, the allocations of its training come out; runs in a process of its own, since much is pretended."""

from __future__ import annotations

import functools
import importlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
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
from tbmem.model.category import Category, Phase
from tbmem.model.fake_run import FakeRun
from tbmem.model.job import Job, is_factory
from tbmem.sources.fake.attention import gpu_attention
from tbmem.sources.fake.classify import classify
from tbmem.sources.fake.cuda_guard import install_guard
from tbmem.sources.fake.log import AllocationLog
from tbmem.sources.fake.mode import FakeMode
from tbmem.sources.fake.modules import ModuleStack
from tbmem.sources.fake.onednn import convolution_scratch
from tbmem.sources.fake.onednn_lstm import lstm_scratch
from tbmem.sources.fake.pretend import modules_that_move, not_traced, patched, pretend_cuda
from tbmem.sources.fake.reads import ReadWatch
from tbmem.sources.fake.recurrent import register_gru
from tbmem.sources.fake.scratch import Scratch, scratch_bytes
from tbmem.sources.fake.subject import Subject, make_subject
from tbmem.sources.fake.tracker import AllocationTracker, counting
from tbmem.sources.fake.training import Training, layers_of
from tbmem.sources.fake.unknown import history_not_counted, not_checkpointed, not_counted
from tbmem.sources.fake.user_code import calls_led_to


class _Watcher:
    def __init__(self, log: AllocationLog, tracker: AllocationTracker) -> None:
        self.begin_step, self.begin, self.mark = log.begin_step, log.begin, tracker.mark


_flex_attention = importlib.import_module("torch._higher_order_ops.flex_attention")
"""Imported by name: its package has an operator of the same."""
_PLACES = 6
"""Lines that a note names."""
_EAGER = "torch.compile was left out: memory is that of eager mode, which fused kernels need less of"
_FLEX = "flex_attention was counted as the kernel that torch.compile makes of it, which keeps no scores"


_not_compiled: dict[str, None] = {}
"""What is to be said of it. Of the process: a module that one job has imported is the next one's, too."""


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


_WRAPPERS: dict[type, str] = {
    nn.parallel.DistributedDataParallel: (
        "cannot wrap fake tensors (its reducer reads addresses): return the plain model, --ddp N adds what DDP holds"
    ),
    FullyShardedDataParallel: (
        "(FSDP1) cannot wrap fake tensors (its flat parameters are views of real memory): return the plain model,"
        " --fsdp N shards it with FSDP2, whose states have the same size"
    ),
}


def execute(job: Job) -> FakeRun:
    """Run a job's steps on fake tensors."""
    began = time.perf_counter()
    with ExitStack() as stack:
        kernels: set[str] = set()
        if job.device == "cuda":
            install_guard()
            register_gru()
            stack.enter_context(pretend_cuda(max(job.world_size, 1), job.capability, job.total))
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
            from tbmem.sources.fake.ranks import one_of_many

            stack.enter_context(one_of_many(job))
        mode = stack.enter_context(FakeMode(allow_non_fake_inputs=True))
        log, modules = AllocationLog(), ModuleStack()
        capability = job.capability if job.device == "cuda" else None
        tracker = AllocationTracker(log, job.device, mode, modules, capability, _scratch(job))
        # which only tries functions of scores out
        trace = counting(_flex_attention.create_fw_bw_graph, tracker, "paused")
        stack.enter_context(patched(_flex_attention, "create_fw_bw_graph", trace))
        training = _train(job, stack, log, tracker, modules)
        about = _about(job, training, kernels, time.perf_counter() - began)
        unknown = not_counted(training.model, log.operators) if job.device == "cuda" or job.instead else ()
        whole = not_checkpointed(layers_of(training.model)) if job.checkpoint else ()
        missing = (*whole, *unknown, *history_not_counted(training.optimizer))
        notes = (*_notes(tracker, job), *_twice_halved(job, about["dtype"]), *missing, *_not_compiled)
        return classify(log.run(notes, about))


def _scratch(job: Job) -> Scratch | None:
    if job.device == "cuda":
        return scratch_bytes
    return None if job.instead else _onednn_scratch


def _onednn_scratch(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    return convolution_scratch(operator, args, result) or lstm_scratch(operator, args, result)


def _train(
    job: Job, stack: ExitStack, log: AllocationLog, tracker: AllocationTracker, modules: ModuleStack
) -> Training:
    stack.enter_context(tracker)
    watch = stack.enter_context(ReadWatch(tracker))
    calls = {"int": watch.whole, "range": watch.times, "min": watch.least, "max": watch.most}
    stack.enter_context(calls_led_to(calls))
    subject = _built(job, tracker)
    stack.enter_context(not_traced())
    stack.enter_context(modules)
    if job.device == "cpu":
        _adopt(subject.model, tracker)
    called = type(subject.model).__name__
    training = _training(job, subject, _Watcher(log, tracker), tracker, stack)
    modules.name(training.model, called)
    training.run()
    log.phase = Phase.OTHER
    return training


def _training(job: Job, subject: Subject, watcher: _Watcher, tracker: AllocationTracker, stack: ExitStack) -> Training:
    if job.world_size == 1:
        return Training(job, subject, watcher)
    from tbmem.sources.fake.many import RankTraining
    from tbmem.sources.fake.ranks import distributed_tensors

    stack.enter_context(distributed_tensors(tracker))
    return RankTraining(job, subject, watcher, tracker)


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


def _adopt(model: nn.Module, tracker: AllocationTracker) -> None:
    """Count what is on the device already."""
    for tensor in chain(model.parameters(), model.buffers()):
        tracker.adopt(tensor)


def _about(job: Job, training: Training, kernels: set[str], seconds: float) -> dict[str, Any]:
    parameters = list(training.model.parameters())
    return {
        "torch": str(torch.__version__),
        "device": job.device,
        "seconds": seconds,
        "parameters": sum(parameter.numel() for parameter in parameters),
        "parameter_bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        "dtype": _commonest(parameters),
        "architecture": training.subject.architecture,
        "attention": sorted(kernels),
        "categories": [category.name for category in Category],
    }


def _commonest(parameters: Iterable[nn.Parameter]) -> str:
    """The type that most bytes of parameters have."""
    sizes: Counter[str] = Counter()
    for parameter in parameters:
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel() * parameter.element_size()
    return max(sizes, key=sizes.__getitem__, default="")


def _notes(tracker: AllocationTracker, job: Job) -> Iterator[str]:
    if tracker.reads:
        count = sum(tracker.reads.values())
        assumed = "0, 1 or False was assumed, of all() True"
        yield f"{count} values of tensors were read ({_places(tracker.reads)}); fake tensors have none: {assumed}"
    if tracker.taken and is_factory(job.model):
        yield f"the batch's own values decided something ({_places(tracker.taken)}): others may need more or less"


def _twice_halved(job: Job, dtype: str) -> Iterator[str]:
    if job.amp is not None and job.fsdp == 1 and dtype in ("bfloat16", "float16"):
        yield f"--amp {job.amp} runs over parameters in {dtype}: --dtype float32 keeps them, and their gradients, whole"


def _places(lines: Iterable[str]) -> str:
    found = sorted(lines)
    more = f" and {len(found) - _PLACES} more" if len(found) > _PLACES else ""
    return ", ".join(found[:_PLACES]) + more
