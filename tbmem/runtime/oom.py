"""An exception goes in; whether it means that memory ran out, on which device and for how much, comes out."""

from __future__ import annotations

import math
import re

import torch

from tbmem.units import parse_bytes

_SIGNS = (
    *("DefaultCPUAllocator", "can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED"),
    "Caught MemoryError in ",
)
"""What a plain RuntimeError says when malloc, the driver or cuBLAS had nothing left, or a DataLoader's worker."""
_ASKED = (
    re.compile(r"tried to allocate (\d+ bytes)", re.IGNORECASE),
    re.compile(r"tried to allocate (\d+(?:\.\d+)? [KMGT]iB)", re.IGNORECASE),
    re.compile(r"Unable to allocate (\d+(?:\.\d*)? (?:[KMGT]iB|bytes))"),
)
"""How torch (CPU, CUDA) and numpy tell how much was asked for."""
_DEVICE = re.compile(r"\bGPU (\d+)\b|\bXPU (\d+)\b")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device or the host had no memory left."""
    return out_of_memory_in(error) is not None


def out_of_memory_in(error: BaseException | None) -> BaseException | None:
    """The exception that says so: ``error`` itself, or what it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return error
        if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS):
            return error
        error = error.__cause__
    return None


def requested_bytes(error: BaseException) -> int | None:
    """How much was asked for in vain; ``None`` where the exception does not say."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if isinstance(error, MemoryError) and isinstance(shape, tuple) and dtype is not None:
        return math.prod(shape) * int(dtype.itemsize)  # numpy's own
    for pattern in _ASKED:
        match = pattern.search(str(error))
        if match is not None:
            return parse_bytes(match[1])
    return None


def device_of(error: BaseException) -> str:
    """``'cuda:1'`` for an accelerator's error as far as it says which, ``'cpu'`` for the host's."""
    match = _DEVICE.search(str(error))
    if match is not None:
        return f"cuda:{match[1]}" if match[1] is not None else f"xpu:{match[2]}"
    on_device = isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error) or "CUBLAS" in str(error)
    if not on_device:
        return "cpu"
    is_awake = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    return f"cuda:{torch.cuda.current_device()}" if is_awake else "cuda:0"
