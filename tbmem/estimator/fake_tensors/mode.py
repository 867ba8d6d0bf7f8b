"""Torch's fake mode, corrected where it differs from what the real operators do to memory."""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._subclasses.fake_tensor import FakeTensorMode

_GROUPED = torch.ops.aten._grouped_mm.default
_WAIT = "_c10d_functional::wait_tensor"


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake mode, which never looks for the devices of its tensors and gives nobody their addresses."""

    supports_higher_order_operators = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._allow_unsafe_data_ptr_access = False

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
        takes_functions = isinstance(func, torch._ops.HigherOrderOperator)
        if takes_functions:
            # such operators know modes by their very type, which this one is not
            if FakeTensorMode in func.python_key_table and func not in registered_hop_fake_fns:
                return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
        elif func.name() == _WAIT:
            # the real one waits and gives back what it got; torch's fake one makes a copy
            return args[0]
        elif func is _GROUPED and args[0].dtype in (torch.float32, torch.float16):
            return self._grouped(args, kwargs)
        return super().dispatch(func, types, args, kwargs)

    def _grouped(self, args: Any, kwargs: Any) -> Any:
        """Products of groups: the real operator takes these types as well, its fake one only bfloat16."""
        dtype = args[0].dtype
        with self:
            low = [one.to(torch.bfloat16) if getattr(one, "dtype", None) is dtype else one for one in args]
            return _GROUPED(*low, **kwargs).to(dtype)
