"""Hides tbmem's own calls of torch from the program's modes and tensor subclasses."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

_dispatch_modes: Any = torch._C._len_torch_dispatch_stack


class Unseen:
    """A block in which this thread's TorchFunctionMode, TorchDispatchMode and ``__torch_function__`` see no call.

    What the program counts, logs or refuses in them is its own work, not tbmem's. A block takes half a microsecond; it
    may be entered again within itself, by another object.
    """

    __slots__ = ("_function", "_modes")

    def __enter__(self) -> None:
        # the guard of torch turns off modes as well as subclasses
        self._function: Any = torch._C.DisableTorchFunction()
        self._function.__enter__()
        self._modes: Any = _disable_current_modes() if _dispatch_modes() else None
        if self._modes is not None:
            self._modes.__enter__()

    def __exit__(self, *error: object) -> None:
        if self._modes is not None:
            self._modes.__exit__(None, None, None)
        self._function.__exit__(None, None, None)


def end_unseen() -> None:
    """End the blocks of this thread: an exception of the program may have come while one began or ended."""
    functions: Any = torch._C
    if hasattr(functions, "_set_torch_function_state"):  # not before torch 2.6
        functions._set_torch_function_state(functions._TorchFunctionState.ENABLED)
