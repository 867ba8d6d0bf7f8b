"""Values of fake tensors that the batch decides, and the sizes that depend on them.

A batch that a factory makes has values, and so has what only depends on it: lengths, masks, offsets. Those are computed
beside the fake tensors. What a model computes with its parameters has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_MOST = 1 << 20
"""Elements of a tensor whose values are kept."""
_MOST_OF_FRACTIONS = 1 << 12
"""The same for numbers that are not whole, once the batch is made: lengths are few, tables of positions are not."""
_VALUE = "tbmem_value"
"""Attribute of a fake tensor: a real one on the host."""
_ATEN = torch.ops.aten
_INDEX = _ATEN.index.Tensor
_SELECT = _ATEN.masked_select.default
_BUILT_IN = ("aten", "prims")
_LAYOUT = frozenset({"set_", "resize_", "resize_as_"})
_MASKS = (torch.bool, torch.uint8)


_NOT_KNOWN = object()


class DependsOnValueError(RuntimeError):
    """A size is a value that the model computes, which fake tensors do not have."""

    def __init__(self, where: str) -> None:
        super().__init__(
            f"a size, an index or a whole number is a value that the model computes (read at {where}), which an"
            " estimate does not have: have the factory put it into the batch, or give the model an upper bound"
        )


class _NotKnownError(Exception):
    """An argument has no values."""


class KnownValues:
    """What is known of the contents of fake tensors."""

    def __init__(self) -> None:
        self.batch_is_made = False
        self._stale: dict[int, torch.UntypedStorage] = {}
        """Held, lest another gets the same address."""

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """A tensor's values on the host; ``None`` where they are not known."""
        if not isinstance(tensor, FakeTensor):
            return tensor if tensor.device.type == "cpu" else None
        real: torch.Tensor | None = getattr(tensor, _VALUE, None)
        if real is None or real.untyped_storage()._cdata in self._stale:
            return tensor.constant
        return real

    def discard(self, tensors: Iterable[Any]) -> None:
        """Values that stand for others decide nothing."""
        for tensor in tensors:
            if isinstance(tensor, FakeTensor) and hasattr(tensor, _VALUE):
                delattr(tensor, _VALUE)

    def propagate(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Compute what an operator has made, where all that went in is known."""
        if not isinstance(operator, torch._ops.OpOverload) or operator.namespace not in _BUILT_IN:
            return
        if operator._schema.is_mutable:
            self._write(operator, args, kwargs)
        elif self._is_wanted(operator, result) and (real := self._computed(operator, args, kwargs)) is not _NOT_KNOWN:
            self._remember(result, real)

    def run_data_dependent(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Result of an operator whose size depends on values that are known; ``None`` where they are not."""
        if operator is _SELECT:
            shape = torch.broadcast_shapes(args[0].shape, args[1].shape)  # type: ignore[no-untyped-call]
            args = args[0].expand(shape), [args[1].expand(shape)]
            operator = _INDEX
        if operator is _INDEX:
            return self._indexed(*args)
        if (real := self._computed(operator, args, kwargs)) is _NOT_KNOWN:
            return None
        device = next(one.device for one in tensors_in((*args, *kwargs.values())))
        made = [torch.empty(one.shape, dtype=one.dtype, device=device) for one in tensors_in(real)]
        result = made[0] if isinstance(real, torch.Tensor) else tuple(made)
        self._remember(result, real)
        return result

    def _indexed(self, values: torch.Tensor, indices: list[torch.Tensor | None]) -> Any:
        """Masks become the positions at which they are true, as in torch itself."""
        found: list[torch.Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in _MASKS:
                found.append(index)
            elif self.of(index) is None:
                return None
            else:
                found.extend(index.nonzero().unbind(1))
        return _INDEX(values, found)

    def _is_wanted(self, operator: Any, result: Any) -> bool:
        if operator.name().startswith("aten::empty") or operator is _ATEN.new_empty.default:
            return False
        if self.batch_is_made and torch.Tag.nondeterministic_seeded in operator.tags:
            # which is another number at each step
            return False
        made = list(tensors_in(result))
        return bool(made) and all(self._is_small(one) for one in made)

    def _is_small(self, tensor: torch.Tensor) -> bool:
        whole = not (tensor.is_floating_point() or tensor.is_complex())
        most = _MOST if whole or not self.batch_is_made else _MOST_OF_FRACTIONS
        return isinstance(tensor, FakeTensor) and tensor.layout is torch.strided and tensor.numel() <= most

    def _computed(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the operator makes of the values; ``_NOT_KNOWN`` where they are not, or are no good."""
        try:
            positional = [self._real(one) for one in args]
            named = {name: self._real(one) for name, one in kwargs.items() if name != "pin_memory"}
            with torch._C._DisableTorchDispatch():
                return operator(*positional, **named)
        except Exception:  # whatever is wrong with the values, the fake operator has let it pass
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
            return [self._real(one) for one in value]
        return value

    def _remember(self, result: Any, real: Any) -> None:
        for fake, one in zip(tensors_in(result), tensors_in(real), strict=True):
            # torch itself follows single numbers
            if getattr(fake, "constant", None) is None and one.shape == fake.shape and one.dtype is fake.dtype:
                setattr(fake, _VALUE, one)

    def _write(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """An operator changes tensors: so do their values, or neither they nor what shares their memory is known."""
        written = [
            real
            for argument, value in _named(operator._schema.arguments, args, kwargs)
            if argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors_in(value)
            if (real := _storage(tensor)) is not None
        ]
        if not written:
            return
        moves = operator._schema.name.partition("::")[2] in _LAYOUT
        if moves or self._computed(operator, args, kwargs) is _NOT_KNOWN:
            self._stale.update((storage._cdata, storage) for storage in written)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    real: torch.Tensor | None = getattr(tensor, _VALUE, None)
    return None if real is None else real.untyped_storage()


def _named(arguments: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    yield from zip(arguments, args, strict=False)
    for argument in arguments:
        if argument.name in kwargs:
            yield argument, kwargs[argument.name]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an operator's result or arguments, also those in lists."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)
