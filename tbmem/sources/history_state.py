"""The allocator of this process goes in; whether it records a memory history, whoever switched it on, comes out."""

from __future__ import annotations

import torch


def cuda_history_is_on() -> bool:
    """Whether somebody records memory history on CUDA, the only kind of device where torch tells."""
    asked = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(asked()) if asked is not None else False
