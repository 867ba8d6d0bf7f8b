"""Calls of torch go in; those in which a value decides a size that an estimate does not have are refused.

A number that is read of a tensor without values counts as one (mostly 0) that programs go on with. Where it goes back
into torch the call is made once more, with another number in its place: another shape means that the number mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from tbmem.sources.fake.tracker import AllocationTracker
from tbmem.sources.fake.unknown_number import Unknown, unknown, where_read

_ADVICE = "which an estimate does not have: have the factory put it into the batch, or give the model an upper bound"


class DependsOnValue(RuntimeError):
    """A size is a value of a tensor that has none."""


class ReadWatch(TorchFunctionMode):
    """Knows which numbers are not known."""

    def __init__(self, tracker: AllocationTracker) -> None:
        super().__init__()
        self._tracker = tracker
        self._handed_out = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if func is torch.Tensor.item:
            return self._item(args[0])
        if func is torch.Tensor.numpy and isinstance(args[0], FakeTensor):
            return self._numpy(args[0], kwargs)
        where = next(_unknown((args, kwargs)), None) if self._handed_out else None
        if where is not None and any(isinstance(one, slice) for one in _flat(args)) and _in_slice(args):
            raise _refusal(func, where)
        before = self._tracker.unknown_reads
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            if where is None and self._tracker.unknown_reads == before:
                raise
            raise _refusal(func, where) from error
        if where is None and self._tracker.unknown_reads == before:
            return result
        if (shapes := _shapes(result)) and shapes != self._with_another(func, args, kwargs):
            raise _refusal(func, where)
        return result

    def whole(self, value: Any, *rest: Any) -> Any:
        """``int()``, which keeps in mind what is not known."""
        if isinstance(value, FakeTensor):
            number = self._item(value)
            known = self._tracker.known(value) is not None
            return int(number) if known else unknown(int(number), self._tracker.line())
        where = where_read(value)
        return int(value, *rest) if where is None else unknown(int(value), where)

    def times(self, *bounds: Any) -> range:
        """``range()``, whose length is known."""
        bounds = tuple(self.whole(one) if isinstance(one, FakeTensor) else one for one in bounds)
        if (where := where_read(*bounds)) is not None:
            raise DependsOnValue(f"how often a loop runs is a value (read at {where}), {_ADVICE}")
        return range(*bounds)

    @staticmethod
    def least(*values: Any, **options: Any) -> Any:
        """``min()``, which is not known if one of them is not."""
        return _chosen(min(*values, **options), values)

    @staticmethod
    def most(*values: Any, **options: Any) -> Any:
        """``max()``, which is not known if one of them is not."""
        return _chosen(max(*values, **options), values)

    def _item(self, tensor: torch.Tensor) -> Any:
        before = self._tracker.unknown_reads
        number = torch.Tensor.item(tensor)
        if self._tracker.unknown_reads == before or type(number) is not int:
            return number
        self._handed_out = True
        return unknown(number, self._tracker.line())

    def _numpy(self, tensor: torch.Tensor, options: dict[str, Any]) -> Any:
        real = self._tracker.known(tensor)
        if real is None:
            return torch.Tensor.numpy(tensor, **options)
        with torch._C._DisableTorchDispatch():
            return real.numpy(**options)

    def _with_another(self, func: Callable[..., Any], args: Any, kwargs: Any) -> list[tuple[int, ...]] | None:
        """Shapes of what a call returns if an unknown number is one less; ``None`` if it returns nothing."""
        with self._tracker.trying(), torch.no_grad():
            try:
                return _shapes(func(*_less(args), **_less(kwargs)))
            except Exception:  # whatever it says: that number does not go
                return None


def _refusal(func: Any, where: str | None) -> DependsOnValue:
    name = getattr(func, "__name__", str(func))
    what = "an index" if name in ("__getitem__", "__setitem__") else f"a size in {name}"
    read = f" (read at {where})" if where else ""
    return DependsOnValue(f"{what} is a value{read}, {_ADVICE}")


def _chosen(value: Any, values: tuple[Any, ...]) -> Any:
    where = where_read(*values)
    return value if where is None or not isinstance(value, (int, float)) else unknown(value, where)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _flat(one)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def _unknown(value: Any) -> Iterator[str]:
    for one in _flat(value):
        if isinstance(one, Unknown):
            yield one.where
        elif isinstance(one, slice):
            yield from _unknown((one.start, one.stop, one.step))


def _in_slice(args: Any) -> bool:
    return any(isinstance(one, slice) and where_read(one.start, one.stop, one.step) for one in _flat(args))


def _less(value: Any) -> Any:
    if isinstance(value, Unknown):
        return (int(value) if isinstance(value, int) else float(value)) - 1
    if type(value) in (tuple, list):
        return type(value)(_less(one) for one in value)
    if type(value) is dict:
        return {name: _less(one) for name, one in value.items()}
    return value


def _shapes(result: Any) -> list[tuple[int, ...]]:
    return [tuple(one.shape) for one in _flat(result) if isinstance(one, torch.Tensor)]
