"""Propagates known values of fake tensors, and computes the sizes that depend on them.

The batch of a factory has values, and so has what only depends on it: lengths, masks, offsets. Values computed from
parameters are unknown.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import torch
from torch._subclasses.fake_tensor import FakeTensor

_MOST = 1 << 20
"""Largest number of elements whose values are kept."""
_MOST_FLOATS = 1 << 12
"""The same for floating-point tensors that the model computes from the batch."""
_VALUE = "tbmem_value"
"""Attribute of a fake tensor: a real tensor on the host."""
_ATEN = torch.ops.aten
_INDEX = _ATEN.index.Tensor
_SELECT = _ATEN.masked_select.default
_OR = frozenset({_ATEN.bitwise_or.Tensor, _ATEN.logical_or.default})
_AND = frozenset({_ATEN.bitwise_and.Tensor, _ATEN.logical_and.default})
_BUILT_IN = ("aten", "prims")
_LAYOUT = frozenset({"set_", "resize_", "resize_as_"})
_MASKS = (torch.bool, torch.uint8)
_NOT_KNOWN = object()


class DependsOnValueError(RuntimeError):
    """A size depends on a value that the model computes."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"a size, an index or a whole number is a value that the model computes (read at {where}), which an"
            " estimate does not have: have the factory put it into the batch, or give the model an upper bound"
        )


class UnknownNumber(float):
    """An integer that the model computed: 0 in sums and messages, an error as a size.

    A float, since neither Python nor torch accepts one as a size, an index or the length of a loop.
    """

    where = ""
    """Source line that read it."""

    @classmethod
    def read_at(cls, where: str, value: float) -> UnknownNumber:
        """A number that a source line read."""
        number = cls(value)
        number.where = where
        return number

    def _refuse(self, *_: Any) -> NoReturn:
        raise DependsOnValueError(self.where)

    __int__ = __index__ = __trunc__ = _refuse

    def __ceil__(self) -> UnknownNumber:  # type: ignore[override]
        return self.read_at(self.where, math.ceil(float(self)))

    def __floor__(self) -> UnknownNumber:  # type: ignore[override]
        return self.read_at(self.where, math.floor(float(self)))

    def __round__(self, digits: int | None = None) -> UnknownNumber:  # type: ignore[override]
        return self.read_at(self.where, round(float(self), digits or 0))

    def __format__(self, spec: str) -> str:
        return format(int(float(self)) if spec.endswith("d") else float(self), spec)


def _arithmetic(compute: Callable[[Any, Any], Any], reflected: bool) -> Callable[[Any, Any], Any]:
    def method(self: UnknownNumber, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        left, right = (float(other), float(self)) if reflected else (float(self), float(other))
        divisor = right or 1.0 if compute in _DIVISIONS else right
        return self.read_at(self.where, compute(left, divisor))

    return method


_DIVISIONS = (operator.truediv, operator.floordiv, operator.mod)
for _compute in (operator.add, operator.sub, operator.mul, operator.pow, *_DIVISIONS):
    setattr(UnknownNumber, f"__{_compute.__name__}__", _arithmetic(_compute, reflected=False))
    setattr(UnknownNumber, f"__r{_compute.__name__}__", _arithmetic(_compute, reflected=True))


class _NotKnownError(Exception):
    """An argument has no values."""


class KnownValues:
    """Known values of fake tensors."""

    def __init__(self) -> None:
        self.batch_is_made = False
        self._stale: dict[int, torch.UntypedStorage] = {}
        """Kept alive, so that their addresses are not reused."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor's values on the host; ``None`` if unknown."""
        if not isinstance(tensor, FakeTensor):
            return tensor if tensor.device.type == "cpu" else None
        real: torch.Tensor | None = getattr(tensor, _VALUE, None)
        if real is None or real.untyped_storage()._cdata in self._stale:
            return tensor.constant
        return real

    def discard(self, tensors: Iterable[Any]) -> None:
        """Discard values, of a batch that is a placeholder."""
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and hasattr(tensor, _VALUE):
                delattr(tensor, _VALUE)

    def propagate(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Compute the values of an operator's result, if those of all its inputs are known."""
        if not isinstance(operator, torch._ops.OpOverload) or operator.namespace not in _BUILT_IN:
            return
        if operator._schema.is_mutable:
            self._write(operator, args, kwargs)
        elif self._is_wanted(operator, result):
            real = self._computed(operator, args, kwargs)
            if real is _NOT_KNOWN and operator in _OR | _AND:
                real = self._decided(operator, args, result)
            if real is not _NOT_KNOWN:
                self._remember(result, real)

    def run_data_dependent(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Result of an operator whose output size depends on values; ``None`` if these are unknown."""
        if operator is _SELECT:
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
            args = args[0].expand(shape), [args[1].expand(shape)]
            operator = _INDEX
        if operator is _INDEX:
            return self._indexed(*args)
        if (real := self._computed(operator, args, kwargs)) is _NOT_KNOWN:
            return None
        device = next(tensors_in((*args, *kwargs.values()))).device
        outputs = [torch.empty(tensor.shape, dtype=tensor.dtype, device=device) for tensor in tensors_in(real)]
        result = outputs[0] if isinstance(real, torch.Tensor) else tuple(outputs)
        self._remember(result, real)
        return result

    def _indexed(self, values: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
        """Convert masks into indices, as torch does."""
        positions: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in _MASKS:
                positions.append(index)
            elif self.of(index) is None:
                return None
            else:
                positions.extend(index.nonzero().unbind(1))
        return _INDEX(values, positions)

    def _is_wanted(self, operator: Any, result: Any) -> bool:
        if operator.name().startswith("aten::empty") or operator is _ATEN.new_empty.default:
            return False
        if self.batch_is_made and torch.Tag.nondeterministic_seeded in operator.tags:
            # random: another value at each step
            return False
        outputs = list(tensors_in(result))
        return bool(outputs) and all(self._is_small(tensor) for tensor in outputs)

    def _is_small(self, tensor: torch.Tensor) -> bool:
        most = _MOST if is_integer(tensor) or not self.batch_is_made else _MOST_FLOATS
        return isinstance(tensor, FakeTensor) and tensor.layout is torch.strided and tensor.numel() <= most

    def _computed(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator's result on real values; ``_NOT_KNOWN`` if they are unknown or invalid."""
        try:
            positional = [self._real(value) for value in args]
            named = {name: self._real(value) for name, value in kwargs.items() if name != "pin_memory"}
            with torch._C._DisableTorchDispatch():
                return operator(*positional, **named)
        except Exception:  # the fake operator has succeeded: values do not matter
            return _NOT_KNOWN

    def _decided(self, operator: Any, args: tuple[Any, ...], result: torch.Tensor) -> Any:
        """The result of "or" with a known operand that is all True, of "and" with one that is all False.

        Loops that end with the longest of their outputs, such as ``generate()``, would not end otherwise.
        """
        known = [real for real in map(self.of, args) if real is not None]
        with torch._C._DisableTorchDispatch():
            for real in known:
                if operator in _OR and real.dtype is torch.bool and real.all():
                    return torch.ones(result.shape, dtype=result.dtype)
                if operator in _AND and not real.any():
                    return torch.zeros(result.shape, dtype=result.dtype)
        return _NOT_KNOWN

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            real = self.of(value)
            if real is None:
                raise _NotKnownError
            return real
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return [self._real(item) for item in value]
        return value

    def _remember(self, result: Any, real: Any) -> None:
        for fake, value in zip(tensors_in(result), tensors_in(real), strict=True):
            # torch itself propagates scalars
            if getattr(fake, "constant", None) is None and value.shape == fake.shape and value.dtype is fake.dtype:
                setattr(fake, _VALUE, value)

    def _write(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run an in-place operator on the values; if that fails, mark their storages as unknown."""
        arguments = operator._schema.arguments
        named = ((argument, kwargs[argument.name]) for argument in arguments if argument.name in kwargs)
        written = [
            getattr(tensor, _VALUE).untyped_storage()
            for argument, value in (*zip(arguments, args, strict=False), *named)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors_in(value)
            if hasattr(tensor, _VALUE)
        ]
        if not written:
            return
        moves = operator._schema.name.partition("::")[2] in _LAYOUT
        if moves or self._computed(operator, args, kwargs) is _NOT_KNOWN:
            self._stale.update((storage._cdata, storage) for storage in written)


def is_integer(tensor: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers or truth values."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an operator's result or arguments, including those in lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)
