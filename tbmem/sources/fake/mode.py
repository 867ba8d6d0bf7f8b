"""Operators on fake tensors go in, fake results come out: torch's fake mode, with a memory for what it answered.

A training repeats the same few hundred calls thousands of times. torch remembers its answers too, but takes tensors
apart into far more than decides them: most of an estimate's time was spent on that.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager

_Key = tuple[Any, ...]
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_NEVER = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_BUILT_IN = ("aten", "prims")
_GROUPED = torch.ops.aten._grouped_mm.default
_WAIT = "_c10d_functional::wait_tensor"


class _Answer(NamedTuple):
    """How to make a result again."""

    argument: int
    """Position of the argument that is the result, or whose storage it has; -1: its storage is new."""
    is_argument: bool
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake mode, which never looks for the devices of its tensors and gives nobody their addresses."""

    supports_higher_order_operators = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._allow_unsafe_data_ptr_access = False
        self._answers: dict[_Key, _Answer | None] = {}

    @property
    def avoid_device_init(self) -> bool:
        """Leave CUDA alone, although it says that it is there."""
        return True

    @avoid_device_init.setter
    def avoid_device_init(self, value: bool) -> None:
        del value

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What an operator returns."""
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._higher(func, types, args, kwargs)
        if func.name() == _WAIT:
            # the real one waits and gives back what it got; torch's fake one makes a copy
            return args[0]
        if func is _GROUPED and args[0].dtype in (torch.float32, torch.float16):
            return self._grouped(args, kwargs)
        key = self._key(func, args, kwargs)
        if key is None:
            return super().dispatch(func, types, args, kwargs)
        answer = self._answers.get(key)
        if answer is not None:
            return self._again(answer, args)
        result = super().dispatch(func, types, args, kwargs)
        if key not in self._answers:
            self._answers[key] = self._learned(args, result)
        return result

    def _higher(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Operators that take functions know modes by their very type, which this one is not."""
        known = FakeTensorMode in func.python_key_table and func not in registered_hop_fake_fns
        if known:
            return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
        return super().dispatch(func, types, args, kwargs)

    def _grouped(self, args: Any, kwargs: Any) -> Any:
        """Products of groups: the real operator takes these types as well, its fake one only bfloat16."""
        dtype = args[0].dtype
        with self:
            low = [one.to(torch.bfloat16) if getattr(one, "dtype", None) is dtype else one for one in args]
            return _GROUPED(*low, **kwargs).to(dtype)

    def _key(self, func: Any, args: Any, kwargs: Any) -> _Key | None:
        """All that decides the answer; ``None`` where more than this may."""
        if not isinstance(func, torch._ops.OpOverload) or func.namespace not in _BUILT_IN:
            return None
        if func in self.lift_fns or any(tag in func.tags for tag in _NEVER):
            return None
        found: list[Any] = [
            func,
            torch.get_default_dtype(),
            torch._C._get_default_device(),
            torch.is_inference_mode_enabled(),
        ]
        if not self._describe(args, found):
            return None
        if kwargs:
            found.extend(kwargs)
            named = kwargs.values()
            if any(isinstance(value, torch.Tensor) for value in named) or not self._describe(named, found):
                return None
        return tuple(found)

    def _describe(self, values: Any, found: list[Any]) -> bool:
        for value in values:
            if type(value) is FakeTensor:
                if value.fake_mode is not self or value.constant is not None or value.layout is not torch.strided:
                    return False
                found += (
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.dtype,
                    value.fake_device,
                    value.untyped_storage().nbytes(),
                    value.requires_grad,
                    value.is_conj(),
                    value.is_neg(),
                    value.is_inference(),
                )
            elif isinstance(value, _PLAIN):
                # 1, 1.0 and True are equal, and make different results
                found += (type(value), value)
            elif isinstance(value, (list, tuple)):
                found += (type(value), len(value))
                if not self._describe(value, found):
                    return False
            else:
                return False
        return True

    def _learned(self, args: Any, result: Any) -> _Answer | None:
        """How the result came from the arguments; ``None`` where that is not as simple as it seems."""
        if type(result) is not FakeTensor or result.constant is not None or result.requires_grad:
            return None
        if result.layout is not torch.strided:
            return None
        position, is_argument = _origin(args, result)
        shape, stride, offset = tuple(result.shape), result.stride(), int(result.storage_offset())
        answer = _Answer(position, is_argument, shape, stride, offset, result.dtype, result.fake_device)
        return answer if is_argument or _are_alike(self._again(answer, args), result) else None

    def _again(self, answer: _Answer, args: Any) -> Any:
        if answer.is_argument:
            return args[answer.argument]
        with in_kernel_invocation_manager(self):
            made = torch.empty_strided(answer.shape, answer.stride, dtype=answer.dtype, device="meta")
            if answer.argument >= 0:
                storage = args[answer.argument].untyped_storage()
                made.set_(storage, answer.offset, answer.shape, answer.stride)
        return FakeTensor(self, made, answer.device)


def _origin(args: Any, result: torch.Tensor) -> tuple[int, bool]:
    storage = result.untyped_storage()._cdata
    for position, value in enumerate(args):
        if value is result:
            return position, True
        if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata == storage:
            return position, False
    return -1, False


def _are_alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        torch._C._dispatch_key_set(one) == torch._C._dispatch_key_set(other)
        and one.untyped_storage().nbytes() == other.untyped_storage().nbytes()
        and one.stride() == other.stride()
        and one.storage_offset() == other.storage_offset()
        and one.is_conj() == other.is_conj()
        and one.is_neg() == other.is_neg()
        and one.is_inference() == other.is_inference()
    )
