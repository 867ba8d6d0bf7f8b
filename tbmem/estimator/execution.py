"""Runs a job on fake tensors, in a process of its own since much of torch is patched, and notes what is not counted."""

from __future__ import annotations

import functools
import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves, tree_map

from tbmem.errors import UsageError
from tbmem.estimator.fake_tensors.attention import gpu_attention, plain_linear
from tbmem.estimator.fake_tensors.cuda_kernels import register_kernels
from tbmem.estimator.fake_tensors.device_guard import install_guard
from tbmem.estimator.fake_tensors.encoder_layer import fused_layers
from tbmem.estimator.fake_tensors.fake_cuda import (
    FakeMode,
    current_stream,
    fake_cuda_device,
    patched,
    patched_module_moves,
    recurrent_cells,
    transformers_untraced,
)
from tbmem.estimator.fake_tensors.recurrent import recurrent_layers
from tbmem.estimator.refusals import REHEARSE
from tbmem.estimator.tracker.tracker import AllocationTracker, counting, patched_value_reads
from tbmem.estimator.workload.layers import transformer_layers
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import Workload, make_workload
from tbmem.model.category import Phase
from tbmem.model.job import Job, is_factory
from tbmem.model.simulated_run import SimulatedRun
from tbmem.units import format_bytes

_flex_attention = importlib.import_module("torch._higher_order_ops.flex_attention")
"""Imported by name: its package has an operator of the same."""
_EAGER = (
    "torch.compile was left out: memory is that of eager mode, which fused kernels need less of; compiled training runs"
    " were seen to need 9 to 17 % less, and the range begins that much lower"
)
_FLEX = "flex_attention was counted as the kernel that torch.compile makes of it, which keeps no scores"
_WRAPPERS: dict[type, str] = {
    nn.DataParallel: f"uses several GPUs, and an estimate has one: return the plain model, or {REHEARSE}",
    nn.parallel.DistributedDataParallel: (
        "cannot wrap fake tensors (its reducer reads addresses): return the plain model, --ddp N adds what DDP holds"
    ),
    FullyShardedDataParallel: (
        "(FSDP1) cannot wrap fake tensors (its flat parameters are views of real memory): return the plain model,"
        " --fsdp N shards it with FSDP2, whose states have the same size"
    ),
}
_not_compiled: dict[str, None] = {}
"""Notes on compiled code that ran. Global, since a module that one job has imported is also used by the next."""


def execute(job: Job) -> SimulatedRun:
    """Run a job's steps on fake tensors."""
    with ExitStack() as stack:
        kernels: set[str] = set()
        _patch_torch(job, stack, kernels)
        mode = stack.enter_context(FakeMode(allow_non_fake_inputs=True))
        tracker = AllocationTracker(job.device, mode, job.compute if job.device == "cuda" else None)
        tracker.log.stream = current_stream if job.device == "cuda" else int
        # only traces score functions: allocates nothing
        trace = counting(tracker, "paused")(_flex_attention.create_fw_bw_graph)
        stack.enter_context(patched(_flex_attention, "create_fw_bw_graph", trace))
        resize = _tracked_resize(torch.UntypedStorage.resize_, tracker)
        stack.enter_context(patched(torch.UntypedStorage, "resize_", resize))
        stack.enter_context(tracker)
        stack.enter_context(patched_value_reads(tracker))
        training = _train(job, stack, tracker)
        dtype = _main_dtype(training.model)
        about = {
            "torch": str(torch.__version__),
            "device": job.device,
            "parameters": sum(parameter.numel() for parameter in training.model.parameters()),
            "dtype": dtype,
            "optimizer": training.optimizer_name,
            "sequence": training.workload.sequence or job.sequence,
            "architecture": training.workload.architecture,
            "attention": sorted(kernels),
            "compiled": _EAGER in _not_compiled,
        }
        notes = (*notes_on(job, training, tracker, dtype), *_not_compiled, *[_CUDNN_ATTENDS] * ("cudnn" in kernels))
        return tracker.log.run(notes, about)


def _patch_torch(job: Job, stack: ExitStack, kernels: set[str]) -> None:
    if job.device == "cuda":
        install_guard()
        register_kernels()
        stack.enter_context(fake_cuda_device(job.world_size, job.capability, job.total))
        stack.enter_context(gpu_attention(job.capability, kernels))
        stack.enter_context(plain_linear())
        stack.enter_context(fused_layers())
        stack.enter_context(recurrent_layers(job.multiprocessors))
    else:
        stack.enter_context(recurrent_cells())
    stack.enter_context(patched_module_moves())
    _not_compiled.clear()
    stack.enter_context(patched(torch, "compile", _compile))
    for wrapper, why in _WRAPPERS.items():
        stack.enter_context(patched(wrapper, "__init__", _refused(f"{wrapper.__name__} {why}")))
    # foreach is chosen for fake tensors as for plain ones, in clipping and in an optimizer of the user's own
    for module in (_foreach_utils, importlib.import_module("torch.optim.optimizer")):
        like_plain = [*module._foreach_supported_types, FakeTensor]
        stack.enter_context(patched(module, "_foreach_supported_types", like_plain))
    if job.world_size > 1:
        from tbmem.estimator.parallel.fake_ranks import fake_rank

        stack.enter_context(fake_rank(job))


def _compile(model: Any = None, **_: Any) -> Any:
    """Replaces torch.compile: returns the model unchanged, and adds a note when it runs."""
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


def _refused(message: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise UsageError(message)

    return refuse


def _tracked_resize(resize: Callable[..., Any], tracker: AllocationTracker) -> Callable[..., Any]:
    """Reports resized storages to the tracker: no operator is dispatched for them."""

    def resize_(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        tracker.resized(storage)
        return result

    return resize_


def _train(job: Job, stack: ExitStack, tracker: AllocationTracker) -> Training:
    # neither memory of the host nor reads of values count; what a factory puts on the GPU does
    with counting(tracker, "paused") if job.device == "cpu" else nullcontext():
        workload = make_workload(job)
    workload.batch = tree_map(_on_host, workload.batch)
    tracker.unknown_reads.clear()
    tracker.known_reads.clear()
    tracker.values.batch_is_made = True
    if not workload.has_values:
        tracker.values.discard(tree_leaves(workload.batch))
    stack.enter_context(transformers_untraced())
    stack.enter_context(tracker.modules)
    if job.device == "cpu":
        # already on the device
        for tensor in chain(workload.model.parameters(), workload.model.buffers()):
            tracker.adopt(tensor)
    root = type(workload.model).__name__
    training = _training(job, workload, tracker, stack)
    tracker.modules.register_names(training.model, root)
    training.run()
    tracker.log.phase = Phase.OTHER
    return training


def _on_host(leaf: Any) -> Any:
    """A batch is copied to the device at each step, wherever the factory made it."""
    return leaf.cpu() if isinstance(leaf, torch.Tensor) else leaf


def _training(job: Job, workload: Workload, tracker: AllocationTracker, stack: ExitStack) -> Training:
    if job.world_size == 1:
        return Training(job, workload, tracker)
    from tbmem.estimator.parallel.fake_ranks import distributed_tensors
    from tbmem.estimator.parallel.pipeline import PipelineTraining
    from tbmem.estimator.parallel.sharding import RankTraining

    stack.enter_context(distributed_tensors(tracker))
    kind = PipelineTraining if job.pipeline > 1 and not workload.divided else RankTraining
    return kind(job, workload, tracker)


def _main_dtype(model: nn.Module) -> str:
    """The dtype of most bytes of parameters."""
    sizes: Counter[str] = Counter()
    for parameter in model.parameters():
        sizes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel() * parameter.element_size()
    return max(sizes, key=sizes.__getitem__, default="")


_LISTED_LINES = 6
"""Source lines listed in a note."""
_CONVOLUTION, _LSTM = "aten::convolution", "aten::mkldnn_rnn_layer"
_CUDNN_TAKES = (
    "cuDNN's workspace for convolutions is not counted: it depends on the algorithm that cuDNN chooses on the GPU, and"
    " lives only while one runs; with torch.backends.cudnn.benchmark the tries of the first step may take more"
)
_CUDNN_KEEPS = (
    "recurrent layers ({}) were run cell by cell, as torch does without cuDNN; with it they keep a reserve of its"
    " own size for the backward pass instead of each cell's activations"
)
_ONEDNN = (
    "memory that oneDNN takes for itself on the CPU is not counted: copies of tensors in layouts of its own while a"
    " convolution or an LSTM runs, and what an LSTM keeps for the backward pass"
)
_LBFGS = (
    "LBFGS decides by values, which an estimate does not have, and ends before it keeps any: of its history, which"
    " grows to {}, nothing is counted"
)
_CAST_ONCE = (
    "--inference is torch.no_grad(), where autocast keeps a copy of each weight in {} until it ends;"
    " torch.inference_mode(), where it keeps none, is --inference-mode"
)
_HALVES = {"bfloat16": "bf16", "float16": "fp16"}
"""Types of half the size, with their names for --amp."""
_AMP_OVER_HALF = "--amp {} runs over parameters in {}: --dtype float32 keeps them, and their gradients, whole"
_ALL_HALF = (
    "training is in {} throughout; --dtype float32 --amp {} is autocast, which keeps parameters, gradients and"
    " optimizer state in float32"
)
_NO_LAYERS = (
    "--checkpoint changed nothing: no repeated layers were found in the model; checkpoint its parts in the factory"
    " (torch.utils.checkpoint)"
)
_ONE_UNIT = (
    "--fsdp shards the whole model as one unit: no repeated layers were found in it, so that all of its parameters are"
    " whole at once; keep layers in a ModuleList, or in attributes with numbers (layer1, layer2)"
)
_SCALED = "aten::_scaled_mm"
_FP8 = (
    "fp8: tensors in float8 are counted with a byte for each element, their scales as tensors of their own; what fp8"
    " libraries keep for their own kernels is not (workspaces, transposed copies of Transformer Engine), and gradients"
    " and optimizer state have the types of the parameters"
)
_CUDNN_ATTENDS = "cuDNN's workspace for attention is not counted: cuDNN chooses its size on the GPU"


def notes_on(job: Job, training: Training, tracker: AllocationTracker, dtype: str) -> Iterator[str]:
    """Sentences on what the estimate assumed, and on memory that it does not count."""
    if tracker.unknown_reads:
        count = sum(tracker.unknown_reads.values())
        assumed = "0, 1 or False was assumed, of all() True"
        lines = _join_lines(tracker.unknown_reads)
        yield f"{count} values of tensors were read ({lines}); fake tensors have none: {assumed}"
    if tracker.known_reads and (job.given is not None or is_factory(job.model)):
        lines = _join_lines(tracker.known_reads)
        yield f"the batch's own values decided something ({lines}): others may need more or less"
    if job.fsdp == 1 and dtype in _HALVES:
        if job.amp is not None:
            yield _AMP_OVER_HALF.format(job.amp, dtype)
        elif not job.inference and training.workload.step is None:
            yield _ALL_HALF.format(dtype, _HALVES[dtype])
    if job.inference and not job.inference_mode and job.amp is not None and dtype == "float32":
        yield _CAST_ONCE.format(job.amp)
    if (job.checkpoint or job.fsdp > 1) and not transformer_layers(training.model):
        yield from [_NO_LAYERS] * job.checkpoint + [_ONE_UNIT] * (job.fsdp > 1)
    operators = tracker.log.operators
    if _SCALED in operators or any("float8" in str(tensor.dtype) for tensor in training.held()):
        yield _FP8
    if job.device == "cuda" or job.instead:
        if _CONVOLUTION in operators:
            yield _CUDNN_TAKES
        kinds = sorted({type(part).__name__ for part in training.model.modules() if isinstance(part, nn.RNNBase)})
        if kinds and job.instead:
            yield _CUDNN_KEEPS.format(", ".join(kinds))
    elif _CONVOLUTION in operators or _LSTM in operators:
        yield _ONEDNN
    if isinstance(training.optimizer, torch.optim.LBFGS):
        (group,) = training.optimizer.param_groups
        size = sum(parameter.numel() * parameter.element_size() for parameter in group["params"])
        # each entry has a parameter difference and a gradient difference
        yield _LBFGS.format(format_bytes(2 * group["history_size"] * size))


def _join_lines(lines: Iterable[str]) -> str:
    names = sorted(lines)
    more = f" and {len(names) - _LISTED_LINES} more" if len(names) > _LISTED_LINES else ""
    return ", ".join(names[:_LISTED_LINES]) + more
