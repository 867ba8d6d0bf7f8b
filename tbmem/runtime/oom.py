"""An exception goes in; whether it means that memory ran out comes out."""

from __future__ import annotations

import torch

_CPU_ALLOCATOR = "DefaultCPUAllocator"
"""How torch names its CPU allocator in the RuntimeError that it raises when malloc refuses."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether ``error`` says that a device or the host had no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and _CPU_ALLOCATOR in str(error)
