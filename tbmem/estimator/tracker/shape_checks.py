"""Reads of unknown values of fake tensors: placeholders for logging, an error where they determine a size."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tbmem.estimator.fake_tensors.fake_cuda import patched
from tbmem.estimator.tracker.known_values import DependsOnValueError
from tbmem.estimator.tracker.tracker import AllocationTracker


class UnknownNumber(float):
    """An integer that the model computed: 0 in sums and messages, an error as a size.

    A float, since neither Python nor torch accepts one as a size, an index or the length of a loop.
    """

    where = ""
    """Source line that read it."""

    def _refuse(self, *_: Any) -> NoReturn:
        raise DependsOnValueError(self.where)

    __int__ = __index__ = __trunc__ = _refuse

    def __ceil__(self) -> UnknownNumber:  # type: ignore[override]
        return _unknown(math.ceil(float(self)), self.where)

    def __floor__(self) -> UnknownNumber:  # type: ignore[override]
        return _unknown(math.floor(float(self)), self.where)

    def __round__(self, digits: int | None = None) -> UnknownNumber:  # type: ignore[override]
        return _unknown(round(float(self), digits or 0), self.where)

    def __format__(self, spec: str) -> str:
        value = float(self)
        return format(int(value) if spec.endswith("d") else value, spec)


def _unknown(value: float, where: str) -> UnknownNumber:
    made = UnknownNumber(value)
    made.where = where
    return made


def _arithmetic(compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: UnknownNumber, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        left, right = (float(other), float(self)) if reflected else (float(self), float(other))
        if compute in _DIVISIONS:
            right = right or 1.0
        return _unknown(compute(left, right), self.where)

    return method


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
for _compute in (operator.add, operator.sub, operator.mul, operator.pow, *_DIVISIONS):
    setattr(UnknownNumber, f"__{_compute.__name__}__", _arithmetic(_compute, reflected=False))
    setattr(UnknownNumber, f"__r{_compute.__name__}__", _arithmetic(_compute, reflected=True))


@contextlib.contextmanager
def patched_value_reads(tracker: AllocationTracker) -> Iterator[None]:
    """Within the block ``item()``, ``bool()``, ``float()`` and ``numpy()`` of fake tensors return known values.

    The tracker counts reads of unknown ones.
    """
    numpy = torch.Tensor.numpy

    def is_unknown_count(tensor: torch.Tensor) -> bool:
        is_integer = isinstance(tensor, FakeTensor) and not (
            tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
        )
        return is_integer and tensor.numel() == 1 and tracker.known(tensor) is None

    def counted(original: Callable[[torch.Tensor], Any], kind: type) -> Callable[[torch.Tensor], Any]:
        def read(tensor: torch.Tensor) -> Any:
            if not is_unknown_count(tensor):
                return original(tensor)
            tracker.count_unknown_read()
            return _unknown(0.0, tracker.line()) if kind is UnknownNumber else kind(0)

        return read

    def as_numpy(tensor: torch.Tensor, **options: Any) -> Any:
        real = tracker.known(tensor) if isinstance(tensor, FakeTensor) else None
        if real is None:
            return numpy(tensor, **options)
        with torch._C._DisableTorchDispatch():
            return numpy(real, **options)

    with contextlib.ExitStack() as stack:
        for name, kind in (("item", UnknownNumber), ("__bool__", bool), ("__float__", float)):
            stack.enter_context(patched(torch.Tensor, name, counted(getattr(torch.Tensor, name), kind)))
        stack.enter_context(patched(torch.Tensor, "numpy", as_numpy))
        yield
