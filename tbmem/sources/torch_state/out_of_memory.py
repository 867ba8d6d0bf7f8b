"""Recognises out-of-memory errors: whether an exception is one, on which device and for how many bytes."""

from __future__ import annotations

import errno
import math
import re
from collections.abc import Iterable

import torch

from tbmem.errors import TbmemError
from tbmem.model.finding import Finding, FindingKind
from tbmem.units import parse_bytes

_SIGNS = (
    *("defaultcpuallocator", "can't allocate memory", "cannot allocate memory", "not enough memory", "out of memory"),
    *("_status_alloc_failed", "std::bad_alloc", "caught memoryerror in "),
)
"""What a plain RuntimeError says, in small letters, when malloc, a driver (CUDA, MPS, XPU) or one of its libraries
(cuBLAS, cuDNN) had nothing left, or a DataLoader's worker."""
_REQUESTED = re.compile(r"(?:tried|unable) to allocate (\d+(?:\.\d*)? (?:[KMGT]iB|bytes))", re.IGNORECASE)
"""How torch (CPU, CUDA) and numpy report the requested size."""
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
        is_plain = isinstance(error, RuntimeError) and not isinstance(error, TbmemError)
        if is_plain and any(sign in str(error).lower() for sign in _SIGNS):
            return error
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return error  # a process that could not be made, a file that could not be mapped
        error = error.__cause__
    return None


def ran_out_of_memory(error: BaseException | None, findings: Iterable[Finding]) -> bool:
    """Whether a run ended because memory ran out: by ``error``, or by a request that failed in its last step."""
    return out_of_memory_in(error) is not None or any(finding.kind is FindingKind.OOM for finding in findings)


def requested_bytes(error: BaseException) -> int | None:
    """Bytes of the request that failed; ``None`` where the exception does not say."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if isinstance(error, MemoryError) and isinstance(shape, tuple) and dtype is not None:
        return math.prod(shape) * int(dtype.itemsize)  # numpy's own
    match = _REQUESTED.search(str(error))
    return parse_bytes(match[1]) if match is not None else None


def device_of(error: BaseException) -> str:
    """``'cuda:1'`` for an accelerator's error as far as it says which, ``'cpu'`` for the host's."""
    match = _DEVICE.search(str(error))
    if match is not None:
        return f"cuda:{match[1]}" if match[1] is not None else f"xpu:{match[2]}"
    if "MPS" in str(error):
        return "mps"
    is_cuda = isinstance(error, torch.OutOfMemoryError) or re.search("CUDA|CUBLAS|CUDNN", str(error))
    if not is_cuda:
        return "cpu"
    is_initialized = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    return f"cuda:{torch.cuda.current_device()}" if is_initialized else "cuda:0"
