"""Lets autograd compute gradients of fake CUDA tensors in a process without a GPU.

torch creates fake CUDA tensors on any machine, but autograd needs a device guard and the hooks of the CUDA library.
Both are replaced by ones that report "no device". torch has such a device guard (``ensureCUDADeviceGuardSet``), and
installs it only to replace another. Whether this works with a build of torch is tested first (:func:`self_test`), in a
process of its own, which may crash.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

_CUDA = 1
"""``c10::DeviceType::CUDA``."""
_DEVICE_KINDS = 22
_HOOKS = 96
"""More entries than the vtable of the CUDA hooks has; those behind it are copied and never called."""
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4
"""Indices in that vtable: after two destructors, in the order of the header."""

_references: list[Any] = []
"""Keeps alive what torch holds addresses of."""


def install_guard() -> None:
    """Install the device guard and the hooks; RuntimeError if this build of torch has another layout."""
    import torch

    if _references:
        return
    _install_device_guard(torch)
    built = bool(torch.backends.cuda.is_built())  # type: ignore[no-untyped-call]
    _install_hooks(torch, {_HAS_PRIMARY_CONTEXT: False, **({} if built else {_IS_BUILT: True})})


def self_test() -> None:
    """Raise RuntimeError unless fake CUDA tensors get gradients; some builds of torch crash the process instead."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    install_guard()
    with FakeTensorMode():
        weight = torch.nn.Parameter(torch.empty(4, 4, device="cuda"))
        loss = (torch.ones(2, 4, device="cuda") @ weight + weight.sum()).sum()
        torch.autograd.backward(loss)
        gradient = weight.grad
    if gradient is None or gradient.device.type != "cuda" or gradient.shape != weight.shape:
        raise RuntimeError("fake CUDA tensors get no gradients")


def _library(torch: Any, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", name))


def _install_device_guard(torch: Any) -> None:
    try:
        registry = (ctypes.c_void_p * _DEVICE_KINDS).in_dll(
            _library(torch, "libc10.so"), "_ZN3c104impl26device_guard_impl_registryE"
        )
    except (OSError, ValueError) as error:
        raise RuntimeError(f"this build of torch has no table of device guards: {error}") from error
    if registry[_CUDA]:
        torch._C._ensureCUDADeviceGuardSet()
        return
    answer_nothing = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda this: 0)
    entry = ctypes.cast(answer_nothing, ctypes.c_void_p).value
    table = (ctypes.c_void_p * 64)(*([entry] * 64))
    placeholder = (ctypes.c_void_p * 4)(ctypes.addressof(table))
    _references.extend((answer_nothing, table, placeholder))
    registry[_CUDA] = ctypes.addressof(placeholder)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[_CUDA] == ctypes.addressof(placeholder):
        registry[_CUDA] = None
        raise RuntimeError("torch did not put its own fake device guard in place")


def _install_hooks(torch: Any, answers: dict[int, bool]) -> None:
    try:
        hooks = _library(torch, "libtorch_cpu.so")._ZN2at6detail12getCUDAHooksEv
    except (OSError, AttributeError) as error:
        raise RuntimeError(f"this build of torch has no CUDA hooks: {error}") from error
    hooks.restype = ctypes.c_void_p
    instance = ctypes.cast(hooks(), ctypes.POINTER(ctypes.c_void_p))
    original = instance[0]
    if original is None:
        raise RuntimeError("torch's CUDA hooks have no table")
    # two words before the first entry belong to the vtable: offset and type
    source = ctypes.cast(original - 16, ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (_HOOKS + 2))(*[source[index] for index in range(_HOOKS + 2)])
    for index, answer in answers.items():
        function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda this, answer=answer: answer)
        _references.append(function)
        table[2 + index] = ctypes.cast(function, ctypes.c_void_p).value
    _references.append(table)
    instance[0] = ctypes.addressof(table) + 16
    # torch uses the hooks once more at exit, when Python's functions are gone
    atexit.register(instance.__setitem__, 0, original)
