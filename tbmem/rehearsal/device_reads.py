"""What a program reads from the simulated device although nobody has written it: the device computes nothing."""

from __future__ import annotations

import ctypes
import linecache
import sys
from types import FrameType

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.rehearsal import ComputedRead

_HARMLESS = (
    ("torch/amp/grad_scaler.py", ""),  # zero says that no gradient has overflowed, as in most steps
    ("torch/autograd/graph.py", "pack_to_cpu"),  # activations that go back to the device
    ("torch/_inductor/", ""),  # while it compiles
    ("torch/distributed/fsdp/", ""),  # parameters and gradients on their way to the host
)

_first: ComputedRead | None = None
_kept: list[object] = []


def first_read() -> ComputedRead | None:
    """The first such line of this process, if there was one."""
    return _first


def watch(path: str) -> None:
    """Note the first read; ``path`` is that of the device's library."""
    library = ctypes.CDLL(path)
    observer = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_note_read)
    _kept[:] = [library, observer]
    library.tbmem_device_on_unknown_read(observer)


def _note_read(_bytes: int) -> None:
    global _first
    if _first is None:
        _first = _line_of(sys._getframe(1))


def _line_of(frame: FrameType | None) -> ComputedRead | None:
    """The innermost line of the program itself; ``None`` for reads that do not change what it does."""
    while frame is not None:
        file = frame.f_code.co_filename
        owner = owner_of(file)
        if owner is Owner.TBMEM or _is_harmless(file, frame.f_code.co_name):
            return None
        if owner is Owner.USER:
            code = linecache.getline(file, frame.f_lineno).strip()
            return ComputedRead(file=file, line=frame.f_lineno, code=code)
        frame = frame.f_back
    return None


def _is_harmless(file: str, function: str) -> bool:
    return any(each in file and name in ("", function) for each, name in _HARMLESS)
