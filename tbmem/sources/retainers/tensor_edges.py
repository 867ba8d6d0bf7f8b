"""First and last bytes of a tensor, by which its old value is recognised in a new one.

They are read through the kernel, which refuses an address that cannot be read: pages without access, a file that has
been truncated since it was mapped, memory that another thread has freed by now. Where there is no such call, nothing is
read.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable

import torch

from tbmem.interruption import SuppressedErrors

_EDGE = 64  # bytes at either end
_SMALLEST = 256  # bytes of a tensor below which its ends are of no interest
_VARIED = 24  # different bytes among them at least: a mask or a range begins the same way however long it is
_Read = Callable[[int], bytes]


def edges_of(tensor: torch.Tensor) -> tuple[bytes, bytes]:
    """The first and the last bytes of a tensor on the host; empty where they cannot be read, or say nothing."""
    place = None
    with SuppressedErrors():  # a tensor may have no storage of its own
        place = _place(tensor)
    read = _find_reader()
    if place is None or read is None:
        return b"", b""
    address, size = place
    first, last = read(address), read(address + size - _EDGE)
    return (first if len(set(first)) >= _VARIED else b""), (last if len(set(last)) >= _VARIED else b"")


def _place(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Address and bytes of a tensor's data, if its storage has all of it."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or not tensor.is_contiguous():
        return None
    size, offset = (int(count) * tensor.element_size() for count in (tensor.numel(), tensor.storage_offset()))
    storage = tensor.untyped_storage()
    # a storage may have been made smaller since (``resize_(0)``); the disk of a mapped file may not answer
    if size < _SMALLEST or offset + size > storage.nbytes() or storage.filename is not None:
        return None
    address = storage.data_ptr()
    return (address + offset, size) if address else None


class _Span(ctypes.Structure):
    """``struct iovec``."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@functools.cache
def _find_reader() -> _Read | None:
    """``process_vm_readv`` on this process itself, where it exists and is allowed: Linux."""
    try:
        function = ctypes.CDLL(None).process_vm_readv
    except (OSError, AttributeError, TypeError):
        return None
    spans = ctypes.POINTER(_Span)
    function.restype = ctypes.c_ssize_t
    function.argtypes = [ctypes.c_int, spans, ctypes.c_ulong, spans, ctypes.c_ulong, ctypes.c_ulong]

    def read(address: int) -> bytes:
        buffer = ctypes.create_string_buffer(_EDGE)
        ours = _Span(ctypes.addressof(buffer), _EDGE)
        theirs = _Span(address, _EDGE)
        count = function(os.getpid(), ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
        return buffer.raw if count == _EDGE else b""

    known = ctypes.create_string_buffer(os.urandom(_EDGE), _EDGE)
    return read if read(ctypes.addressof(known)) == known.raw else None
