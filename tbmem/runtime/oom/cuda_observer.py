"""Observes requests that CUDA's allocator cannot serve, before the stack is unwound.

torch's observer cannot be detached, and an exception in it would replace the out-of-memory error. Therefore a process
has one, which calls a listener and never raises. It also sees failures that are caught, as when cuDNN tries an
algorithm. torch calls it without holding the allocator's lock.
"""

from __future__ import annotations

import _thread
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from tbmem.runtime.process.lifecycle import Process


class FailedRequest(NamedTuple):
    """The allocator's report of a failed request, in bytes.

    ``requested`` is rounded up to what it would have requested from the device; ``allowed`` is the device's memory, or
    the part that this process may use.
    """

    device: int
    requested: int
    allowed: int
    free: int


Listener = Callable[[FailedRequest], None]


class _Observer:
    attached_in: int | None = None
    listeners: tuple[Listener, ...] = ()


def listen(listener: Listener) -> None:
    """Call a listener for failed requests until ``stop_listening``; only the latest listener is called."""
    _Observer.listeners += (listener,)
    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # in builds for CUDA only
    if _Observer.attached_in is None and attach is not None:
        _Observer.attached_in = Process.number
        # attaching it now would initialise a device that the program may never use
        lazily: Any = torch.cuda._lazy_call
        lazily(partial(_attach, attach))


def stop_listening(listener: Listener) -> None:
    """Remove a listener."""
    _Observer.listeners = tuple(other for other in _Observer.listeners if other != listener)


def _attach(attach: Callable[[Any], object]) -> None:
    with contextlib.suppress(Exception):  # cudaMallocAsync and pluggable allocators do not support observers
        attach(_forward)


def _forward(device: int, requested: int, allowed: int, free: int) -> None:
    """Called by the allocator in the requesting thread; must not raise."""
    try:
        for listener in _Observer.listeners[-1:]:
            listener(FailedRequest(device, requested, allowed, free))
    except KeyboardInterrupt:
        _thread.interrupt_main()  # raised again after the out-of-memory error
    except BaseException:
        return
