"""Says in one line why a job cannot be estimated, where, and what to do instead."""

from __future__ import annotations

import traceback
from pathlib import Path

from tbmem.errors import TbmemError, first_line
from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.job import Job

REHEARSE = "run the script itself on a simulated GPU: tbmem rehearse -- SCRIPT"


def explain(job: Job, error: BaseException) -> str:
    """An error message of one line: the cause, its source line, and advice."""
    return str(error) if isinstance(error, TbmemError) else f"--model {job.model}: {_location(error)}{_reason(error)}"


def _reason(error: BaseException) -> str:
    kind, text = type(error).__name__, str(error)
    what = first_line(error)
    if len(what) > _LONG:
        what = what.partition(". ")[0][: 2 * _LONG]
    if isinstance(error, SystemExit):
        return f"the factory ended the program ({error.code})"
    if kind == "TimeLimitError":
        return text
    if library := _library_in(error):
        return f"{library}, or {REHEARSE}"
    if name := _divides_by(error) or next((words for words in _NO_RANKS if words in text), ""):
        return f"{_DIVIDES.format('init_process_group' if name in _NO_RANKS else name)}, or {REHEARSE}"
    for words, advice in _ADVICE.items():
        if words in text:
            return f"{advice}, or {REHEARSE}"
    if kind == "DependsOnValueError":
        return f"{text}, or {REHEARSE}"
    if kind in ("DynamicOutputShapeException", "DataDependentOutputException", "GuardOnDataDependentSymNode"):
        return (
            f"shapes depend on values ({what}), which an estimate does not have; give the model an upper bound, or"
            f" {REHEARSE}"
        )
    if kind in ("UnsupportedOperatorException", "UnsupportedFakeTensorException", "NotImplementedError"):
        return f"an operator has no fake version ({what}); register one with torch.library.register_fake, or {REHEARSE}"
    if any(words in text for words in _NEEDS_GPU) or kind == "InterpreterError":
        return (
            f"a kernel that only a GPU can run ({what}); make it an operator with torch.library.custom_op and give it a"
            f" fake version with register_fake, take the model's plain path, or {REHEARSE}"
        )
    if any(words in text for words in _SHAPES):
        return f"{kind}: {what.rstrip('.')}; is the batch of the shape that the model takes?"
    return f"{kind}: {what}"


_LONG = 200
_LAZY = "lazy modules take their sizes from values that an estimate does not have; give the sizes"
_ADVICE = {
    ".numpy() is not supported": (
        ".numpy() reads values, which an estimate does not have; leave it out of what the factory returns"
    ),
    "storage of SparseTensorImpl": (
        "sparse tensors have as many values as are found, which an estimate does not know; leave sparse=True out for an"
        " upper bound"
    ),
    "_pack_padded_sequence": (
        "a packed sequence is as long as its samples are together; leave pack_padded_sequence out, which makes the"
        " estimate an upper bound"
    ),
    "UnknownNumber": (
        "a size, an index or a whole number is a value that the model computes, which an estimate does not have: have"
        " the factory put it into the batch, give the model an upper bound"
    ),
    "UninitializedParameter": _LAZY,
    "UninitializedBuffer": _LAZY,
    "shape_env must not be None": (
        "the sizes of nested tensors are values, which an estimate does not have; give the model padded tensors"
    ),
    "QuantizedMeta": "quantized tensors have no fake version; return the model before it is quantized",
    "least two devices, cuda:": "the model is on several GPUs, and an estimate has one; put all on one",
}
"""Advice by text of the error message, for what fake tensors do not support."""
_NEEDS_GPU = (
    *("data pointer", "active driver", "NVIDIA driver", "not compiled with CUDA", "Cannot find a working triton"),
    *("no kernel image", "CUDA_HOME", "not linked with support for cuda", "_cuda_getCurrentRawStream"),
)
"""Error messages of torch, Triton and compiled extensions for tensors without memory or a missing driver."""
_SHAPES = (
    *("same reduction dim", "cannot be multiplied", "must match the size of tensor", "expected input", "size mismatch"),
    *("Given normalized_shape", "Expected input batch_size", "shapes cannot"),
)
"""Error messages of torch for operands whose shapes do not fit."""
_OWN_LOOP = "{} has a loop and data loaders of its own, which an estimate cannot run; return the model and a batch"
_KERNELS = "the kernels of {} need a GPU; return the model before it is quantized"
_DETECTION = (
    "torchvision's detection models have as many boxes as they find, which an estimate does not know; return the"
    " backbone"
)
_LIBRARIES = {
    "/transformers/trainer.py": _OWN_LOOP.format("transformers' Trainer"),
    "/lightning/pytorch/trainer/": _OWN_LOOP.format("Lightning's Trainer"),
    "/pytorch_lightning/trainer/": _OWN_LOOP.format("Lightning's Trainer"),
    "/bitsandbytes/": _KERNELS.format("bitsandbytes"),
    "/torchao/quantization/": _KERNELS.format("torchao"),
    "/torchvision/models/detection/": _DETECTION,
}
"""What cannot be estimated, by a part of the paths of its files."""
_DIVISIONS = frozenset(
    {"context_parallel", "fully_shard", "init_device_mesh", "init_process_group", "parallelize_module"}
)
_NO_RANKS = ("environment variable RANK expected", "Default process group has not been initialized")
_DIVIDES = "the factory divides the model over ranks itself ({}); return the plain model and say --fsdp or --ddp"


def _library_in(error: BaseException) -> str:
    files = [frame.filename.replace("\\", "/") for frame in traceback.extract_tb(error.__traceback__)]
    return next((why for part, why in _LIBRARIES.items() if any(part in file for file in files)), "")


def _divides_by(error: BaseException) -> str:
    """The function of torch.distributed that the user's code called; empty if the estimate itself did, or nobody."""
    caller = Owner.TBMEM
    for frame in traceback.extract_tb(error.__traceback__):
        owner = owner_of(frame.filename)
        if owner is Owner.TORCH and frame.name in _DIVISIONS and caller is not Owner.TBMEM:
            return frame.name
        if owner in (Owner.USER, Owner.INSTALLED, Owner.TBMEM):
            caller = owner
    return ""


def _location(error: BaseException) -> str:
    """The innermost source line outside of torch, the standard library and tbmem, preferably in the user's own code."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    owners = [(owner_of(frame.filename), frame) for frame in frames]
    shown = [(owner, frame) for owner, frame in owners if owner in (Owner.USER, Owner.INSTALLED)]
    # stable: the user's frames come first
    for _, frame in sorted(shown, key=lambda one: one[0] is Owner.INSTALLED):
        return f"{Path(frame.filename).name}:{frame.lineno}: "
    return ""
