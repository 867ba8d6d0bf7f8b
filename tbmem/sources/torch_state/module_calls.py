"""The module whose call a running stack is in."""

from __future__ import annotations

from types import FrameType

import torch

_CALLS = {torch.nn.Module._wrapped_call_impl.__code__, torch.nn.Module._call_impl.__code__}
"""A compiled module has only the first."""


def outermost_module(frame: FrameType | None) -> torch.nn.Module | None:
    """The module that was called first in a stack, which may be another thread's; ``None`` if it is in no call.

    Up to Python 3.12 reading the variables of a frame leaves a dict of them in it: those of such a call live until it
    returns anyway.
    """
    called = None
    while frame is not None:
        if frame.f_code in _CALLS:
            called = frame
        frame = frame.f_back
    return None if called is None else called.f_locals.get("self")
