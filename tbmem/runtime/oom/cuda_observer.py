"""Reports each request that CUDA's allocator cannot serve to the recorder of the run, before unwinding.

torch's observer (``torch._C._cuda_attach_out_of_memory_observer``) cannot be taken off again, and an exception in it
would take the place of the out-of-memory error. So there is one for the process, which hands on and raises nothing.
It also sees requests whose failure nobody notices, as when cuDNN tries an algorithm that needs too much. torch calls it
when it has let go of the allocator's lock, so that the allocator may be asked, and then raises its own error.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tbmem.runtime.process.identity import Process

_ATTACH = "_cuda_attach_out_of_memory_observer"
"""Function of ``torch._C``, in builds for CUDA only."""


class FailedRequest(NamedTuple):
    """What the allocator says of a request, in bytes."""

    device: int
    requested: int
    """Rounded up to what the allocator would have taken from the device."""
    allowed: int
    """All of the device, or the part that this process may use."""
    free: int
    """Free on the device."""


Listener = Callable[[FailedRequest], None]


class _Observer:
    """The process's one observer."""

    attached_in: int | None = None
    listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Tell a listener of requests that fail, until it leaves; of several only the last that came is told."""
    _Observer.listeners += (listener,)
    if _Observer.attached_in is None and hasattr(torch._C, _ATTACH):
        _Observer.attached_in = Process.number
        # to attach it now would wake up a device that the program may never use
        lazily: Any = torch.cuda._lazy_call
        lazily(_attach)


def stop_listening(listener: Listener) -> None:
    """Tell it no more."""
    _Observer.listeners = tuple(other for other in _Observer.listeners if other != listener)


def _attach() -> None:
    # cudaMallocAsync and pluggable allocators refuse: what explains the error then is the error itself
    with contextlib.suppress(Exception):
        getattr(torch._C, _ATTACH)(_forward)


def _forward(device: int, requested: int, allowed: int, free: int) -> None:
    """Called by the allocator in whatever thread asked; must not raise."""
    listeners = _Observer.listeners
    try:
        if listeners:
            listeners[-1](FailedRequest(device, requested, allowed, free))
    except KeyboardInterrupt:
        _thread.interrupt_main()  # once more, when the error is on its way
    except BaseException:
        return
