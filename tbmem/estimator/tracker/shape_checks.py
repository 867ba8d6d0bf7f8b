"""Reading of values that fake tensors do not have: harmless numbers for logging, refused where they decide a size."""

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
    """A whole number that the model computed: counts as 0 in sums and messages, and is refused as a size.

    A fraction, as far as Python and torch can tell: neither takes it for a size, an index or the length of a loop.
    """

    where = ""
    """The line that read it."""

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


def _spreading(compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def spread(self: UnknownNumber, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        one, two = (float(other), float(self)) if reflected else (float(self), float(other))
        # what is counted is not 0 wherever a program divides by it
        return _unknown(compute(one, two or 1.0) if compute in _DIVISIONS else compute(one, two), self.where)

    return spread


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
for _compute in (operator.add, operator.sub, operator.mul, operator.pow, *_DIVISIONS):
    setattr(UnknownNumber, f"__{_compute.__name__}__", _spreading(_compute, reflected=False))
    setattr(UnknownNumber, f"__r{_compute.__name__}__", _spreading(_compute, reflected=True))


@contextlib.contextmanager
def patched_value_reads(tracker: AllocationTracker) -> Iterator[None]:
    """Within the block ``item()``, ``bool()``, ``float()`` and ``numpy()`` of fake tensors give what is known.

    Args:
        tracker: Knows values that the batch decides, and notes who reads others.
    """
    numpy = torch.Tensor.numpy

    def is_unknown_count(tensor: torch.Tensor) -> bool:
        whole = isinstance(tensor, FakeTensor) and not (
            tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool
        )
        return whole and tensor.numel() == 1 and tracker.known(tensor) is None

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
