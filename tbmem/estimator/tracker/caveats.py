"""Notes on what an estimate assumed, and on memory that it does not count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.workload.train_step import Training, layers_of
from tbmem.model.job import Job, is_factory
from tbmem.units import format_bytes

_PLACES = 6
"""Lines that a note names."""
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
_NO_LAYERS = (
    "--checkpoint changed nothing: the model has no list of like layers; checkpoint its parts in the factory"
    " (torch.utils.checkpoint)"
)


def notes_on(job: Job, training: Training, tracker: AllocationTracker, dtype: str) -> Iterator[str]:
    """One sentence each.

    Args:
        job: What was run.
        training: As it was run.
        tracker: What it has seen.
        dtype: Name of the type that most parameters have.
    """
    yield from _values(job, tracker)
    if job.amp is not None and job.fsdp == 1 and dtype in ("bfloat16", "float16"):
        yield f"--amp {job.amp} runs over parameters in {dtype}: --dtype float32 keeps them, and their gradients, whole"
    if job.checkpoint and not layers_of(training.model):
        yield _NO_LAYERS
    operators = tracker.log.operators
    if job.device == "cuda" or job.instead:
        yield from _of_cudnn(training.model, _CONVOLUTION in operators)
    elif _CONVOLUTION in operators or _LSTM in operators:
        yield _ONEDNN
    if isinstance(training.optimizer, torch.optim.LBFGS):
        (group,) = training.optimizer.param_groups
        size = sum(parameter.numel() * parameter.element_size() for parameter in group["params"])
        # a change of the parameters and one of the gradients for each entry
        yield _LBFGS.format(format_bytes(2 * group["history_size"] * size))


def _values(job: Job, tracker: AllocationTracker) -> Iterator[str]:
    if tracker.reads:
        count = sum(tracker.reads.values())
        assumed = "0, 1 or False was assumed, of all() True"
        yield f"{count} values of tensors were read ({_places(tracker.reads)}); fake tensors have none: {assumed}"
    if tracker.taken and is_factory(job.model):
        yield f"the batch's own values decided something ({_places(tracker.taken)}): others may need more or less"


def _of_cudnn(model: nn.Module, convolutions: bool) -> Iterator[str]:
    if convolutions:
        yield _CUDNN_TAKES
    if kinds := sorted({type(module).__name__ for module in model.modules() if isinstance(module, nn.RNNBase)}):
        yield _CUDNN_KEEPS.format(", ".join(kinds))


def _places(lines: Iterable[str]) -> str:
    found = sorted(lines)
    more = f" and {len(found) - _PLACES} more" if len(found) > _PLACES else ""
    return ", ".join(found[:_PLACES]) + more
