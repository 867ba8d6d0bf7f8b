"""An exception goes in; whether it means that memory ran out comes out."""

from __future__ import annotations

import torch

_SIGNS = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What a plain RuntimeError says when malloc, the driver or cuBLAS had nothing left."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device or the host had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)
