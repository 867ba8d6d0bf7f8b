"""What a program reads from the simulated device although nobody has written it: the device computes nothing."""

from __future__ import annotations

import atexit
import ctypes
import linecache
import sys
import time
from pathlib import Path
from types import FrameType

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.rehearsal import ComputedRead

_SCALER = "torch/amp/grad_scaler.py"  # zero says that no gradient has overflowed, as in most steps


_LAST_CALLS_SECONDS = 0.02
"""For calls that wait for the interpreter's lock at the end of the program."""

_first: ComputedRead | None = None
_kept: list[object] = []


def first_read() -> ComputedRead | None:
    """The first such line of this process, if there was one."""
    return _first


def watch(path: str) -> None:
    """Tell the device of torch's allocations, and note the first read; ``path`` is that of its library."""
    import torch
    from torch.cuda import _gpu_trace

    library = ctypes.CDLL(path)
    for name in ("tbmem_device_allocated", "tbmem_device_freed"):
        getattr(library, name).argtypes = [ctypes.c_size_t]
        getattr(library, name).restype = None
    _gpu_trace.register_callback_for_memory_allocation(library.tbmem_device_allocated)
    _gpu_trace.register_callback_for_memory_deallocation(library.tbmem_device_freed)
    torch._C._activate_gpu_trace()
    atexit.register(_stop)
    observer = ctypes.CFUNCTYPE(None, ctypes.c_size_t)(_note_read)
    _kept[:] = [library, observer]
    library.tbmem_device_on_unknown_read(observer)


def _stop() -> None:
    """No calls into Python from torch's other threads while the interpreter ends: they would end the process.

    torch can switch its trace on only; the flag that it looks at has had this name since torch 2.0.
    """
    import torch

    flag = "_ZN3c104impl8GPUTrace9haveStateE"
    ctypes.c_bool.in_dll(ctypes.CDLL(str(Path(torch.__file__).with_name("lib") / "libc10.so")), flag).value = False
    time.sleep(_LAST_CALLS_SECONDS)


def _note_read(_bytes: int) -> None:
    global _first
    if _first is None:
        _first = _line_of(sys._getframe(1))


def _line_of(frame: FrameType | None) -> ComputedRead | None:
    """The innermost line of the program itself; ``None`` for reads of tbmem and of the gradient scaler."""
    while frame is not None:
        file = frame.f_code.co_filename
        owner = owner_of(file)
        if owner is Owner.TBMEM or file.endswith(_SCALER):
            return None
        if owner is Owner.USER:
            code = linecache.getline(file, frame.f_lineno).strip()
            return ComputedRead(file=file, line=frame.f_lineno, code=code)
        frame = frame.f_back
    return None
