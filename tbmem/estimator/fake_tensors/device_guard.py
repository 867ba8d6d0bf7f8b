"""In a process without a GPU: fake tensors of device ``cuda`` get gradients, as they would with one.

torch makes fake CUDA tensors anywhere, but its autograd asks the machine two things that only a GPU's driver answers:
a device guard, and the hooks of the CUDA library. Both get a stand-in that says "no device". torch has one for the
first itself (``ensureCUDADeviceGuardSet``) and installs it only where another is replaced. Whether all of it works with
a build of torch is tried out before it is relied on (:func:`self_test`): only ever call this in a process of its own.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from typing import Any

_CUDA = 1
"""torch's number of the kind of device."""
_DEVICE_KINDS = 22
_HOOKS = 96
"""More entries than the table of the CUDA hooks has; those behind it are copied and never called."""
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4
"""Places in that table: after two destructors, in the order of the header."""

_kept: list[Any] = []
"""What torch holds addresses of."""


def install_guard() -> None:
    """Let autograd handle CUDA tensors in a process without CUDA.

    Raises:
        RuntimeError: This build of torch is laid out differently.
    """
    import torch

    if _kept:
        return
    _install_device_guard(torch)
    built = bool(torch.backends.cuda.is_built())  # type: ignore[no-untyped-call]
    _install_hooks(
        torch, answers={_HAS_PRIMARY_CONTEXT: False} if built else {_IS_BUILT: True, _HAS_PRIMARY_CONTEXT: False}
    )


def self_test() -> None:
    """Try out what an estimate relies on: fake CUDA tensors get gradients, in place sums included.

    Raises:
        RuntimeError: They do not. A build of torch that is laid out quite differently ends the process instead.
    """
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
    _kept.extend((answer_nothing, table, placeholder))
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
    # two words before the first entry belong to the table: offset and type
    source = ctypes.cast(original - 16, ctypes.POINTER(ctypes.c_void_p))
    table = (ctypes.c_void_p * (_HOOKS + 2))(*[source[index] for index in range(_HOOKS + 2)])
    for place, answer in answers.items():
        function = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda this, answer=answer: answer)
        _kept.append(function)
        table[2 + place] = ctypes.cast(function, ctypes.c_void_p).value
    _kept.append(table)
    instance[0] = ctypes.addressof(table) + 16
    # torch uses the hooks once more while the process ends, when Python's functions are gone
    atexit.register(instance.__setitem__, 0, original)
