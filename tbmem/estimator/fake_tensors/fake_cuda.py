"""FakeTensorMode with corrections, a fake torch.cuda, and patches for what fake tensors do not support.

Patches are undone at the end of their block, but are visible to other threads: use them in a process of its own.
"""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Any

import torch
from torch import nn
from torch._higher_order_ops.utils import registered_hop_fake_fns
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode


class _FakeStream:
    """A stream or an event on which all work is done."""

    device = torch.device("cuda", 0)
    device_index, device_type, cuda_stream = 0, 1, 0

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of torch's own."""
        self.stream_id = next(_stream_numbers)

    def __enter__(self) -> _FakeStream:
        _streams.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _streams.pop()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _answer({"query": True, "elapsed_time": 0.0}.get(name))

    def record_event(self, event: Any = None) -> Any:
        """An event."""
        return event or _FakeEvent()


class _FakeEvent(_FakeStream):
    pass


_stream_numbers = count()
_streams = [_FakeStream()]
"""The default stream, and those that were entered within each other."""


def current_stream() -> int:
    """The number of the stream that torch.cuda would allocate for; 0 is the default one."""
    return _streams[-1].stream_id


def _answer(value: Any) -> Callable[..., Any]:
    """A function that returns a value; a new one for each name, as torch's compiler requires."""
    return lambda *_, **__: value


@contextlib.contextmanager
def fake_cuda_device(devices: int, capability: tuple[int, int], total: int) -> Iterator[None]:
    """Within the block torch.cuda reports devices of this compute capability and total memory in bytes."""
    cuda, accelerator = torch.cuda, torch.accelerator
    everywhere = {"is_available": True, "device_count": devices}
    with contextlib.ExitStack() as stack:
        stack.enter_context(patched(cuda, "Stream", _FakeStream))
        stack.enter_context(patched(cuda, "Event", _FakeEvent))
        stack.enter_context(patched(cuda, "stream", lambda stream: stream or contextlib.nullcontext()))
        stack.enter_context(patched(cuda, "current_stream", lambda *_: _streams[-1]))
        stack.enter_context(patched(accelerator, "current_stream", lambda *_: _streams[-1]))
        for target, answers in (
            (cuda, {**everywhere, **_answers(capability, total), "default_stream": _streams[0]}),
            (cuda.memory, {"_record_memory_history": None}),
            (torch.Tensor, {"record_stream": None}),
            (cuda.nvtx, dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"))),
            (accelerator, {**everywhere, "current_accelerator": torch.device("cuda"), "current_device_index": 0}),
        ):
            for name, value in answers.items():
                stack.enter_context(patched(target, name, _answer(value)))
        yield


@contextlib.contextmanager
def transformers_untraced() -> Iterator[None]:
    """Within the block transformers, if it is imported, treats fake tensors as plain ones.

    Otherwise it assumes ``torch.export`` and creates masks, which lead to another attention kernel.
    """
    utils: Any = sys.modules.get("transformers.utils.import_utils")
    known = hasattr(utils, "is_fake_tensor")
    with patched(utils, "is_fake_tensor", lambda _: False) if known else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def patched(target: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute within the block."""
    existed, old = hasattr(target, name), getattr(target, name, None)
    setattr(target, name, value)
    try:
        yield
    finally:
        if existed:
            setattr(target, name, old)
        else:
            delattr(target, name)


def _answers(capability: tuple[int, int], total: int) -> dict[str, Any]:
    """What functions of torch.cuda return."""
    silent = (
        "set_device synchronize _lazy_init init set_stream set_rng_state manual_seed manual_seed_all empty_cache"
        " ipc_collect reset_peak_memory_stats _maybe_exchange_device"
    )
    zero = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved current_device"
    properties = types.SimpleNamespace(
        **{"name": "pretended GPU", "major": capability[0], "minor": capability[1], "total_memory": total, "uuid": "0"},
        **{"multi_processor_count": 132, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048},
        **{"warp_size": 32, "L2_cache_size": 50 << 20, "shared_memory_per_block": 49152, "gcnArchName": ""},
        **{"shared_memory_per_block_optin": 232448, "shared_memory_per_multiprocessor": 233472},
        **{"is_integrated": 0, "is_multi_gpu_board": 0},
    )
    return {
        **dict.fromkeys(silent.split()),
        **dict.fromkeys(zero.split(), 0),
        "is_initialized": True,
        "get_device_properties": properties,
        "get_device_capability": capability,
        "get_device_name": properties.name,
        "is_bf16_supported": capability[0] >= 8,
        "get_rng_state": torch.empty(16, dtype=torch.uint8, device="cpu"),
        "get_rng_state_all": [],
        "mem_get_info": (total, total),
        "is_current_stream_capturing": False,
    }


@contextlib.contextmanager
def patched_module_moves() -> Iterator[None]:
    """``Module.to`` and ``copy.deepcopy`` work for modules of fake tensors within the block."""
    original: Callable[..., nn.Module] = nn.Module._apply

    def _apply(module: nn.Module, function: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        if not any(isinstance(tensor, FakeTensor) for tensor in chain(module.parameters(), module.buffers())):
            return original(module, function, recurse)
        # torch's own swap of tensors may fail for fake ones
        _move_all(module, function, {})
        return module

    with patched(nn.Module, "_apply", _apply), patched(FakeTensor, "__deepcopy__", _deepcopy):
        yield


@contextlib.contextmanager
def recurrent_cells() -> Iterator[None]:
    """Within the block recurrent layers run cell by cell: cuDNN, which a CUDA build of torch has, needs addresses."""

    def by_cell(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with torch.backends.cudnn.flags(enabled=False):
                return forward(*args, **kwargs)

        return run

    with contextlib.ExitStack() as stack:
        stack.enter_context(patched(nn.RNNBase, "flatten_parameters", lambda _: None))
        for kind in (nn.RNN, nn.LSTM, nn.GRU):
            stack.enter_context(patched(kind, "forward", by_cell(kind.forward)))
        yield


def _deepcopy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Replaces torch's own, which copies the storage of fake CPU tensors and counts it twice."""
    if id(tensor) not in memo:
        copied = tensor.detach().clone()
        memo[id(tensor)] = nn.Parameter(copied, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copied
    result: torch.Tensor = memo[id(tensor)]
    return result.requires_grad_(tensor.requires_grad)


_Moved = dict[int, tuple["weakref.ref[torch.Tensor]", torch.Tensor]]
"""By the identity of a tensor: that tensor, whose number may be used again, and the moved one."""


def _move_all(module: nn.Module, function: Callable[[Any], Any], moved: _Moved) -> None:
    """Move children first, as torch does; shared tensors stay shared."""
    for child in module.children():
        _move_all(child, function, moved)
    for table in (module._parameters, module._buffers):
        for name, tensor in table.items():
            if tensor is None:
                continue
            if id(tensor) not in moved or moved[id(tensor)][0]() is not tensor:
                moved[id(tensor)] = (weakref.ref(tensor), _move(tensor, function))
            table[name] = moved[id(tensor)][1]  # type: ignore[assignment]
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()


def _move(tensor: torch.Tensor, function: Callable[[Any], Any]) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = function(tensor)
    if isinstance(tensor, nn.Parameter) and result is not tensor:
        return nn.Parameter(result, tensor.requires_grad)
    return result


_GROUPED = torch.ops.aten._grouped_mm.default
_WAIT = "_c10d_functional::wait_tensor"


class FakeMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """torch's fake mode without device initialization and without addresses of tensors."""

    supports_higher_order_operators = True

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._allow_unsafe_data_ptr_access = False

    avoid_device_init = property(lambda self: True, lambda self, value: None)
    """Never initialize CUDA, although it is reported as available."""

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator on fake tensors."""
        kwargs = kwargs or {}
        is_higher_order = isinstance(func, torch._ops.HigherOrderOperator)
        if is_higher_order:
            # these are registered for the exact type FakeTensorMode
            if FakeTensorMode in func.python_key_table and func not in registered_hop_fake_fns:
                return func.python_key_table[FakeTensorMode](self, *args, **kwargs)
        elif func.name() == _WAIT:
            # the real operator returns its input; torch's fake one returns a copy
            return args[0]
        elif func is _GROUPED and args[0].dtype in (torch.float32, torch.float16):
            # the real operator supports these dtypes as well, its fake one only bfloat16
            dtype = args[0].dtype
            with self:
                inputs = [arg.to(torch.bfloat16) if getattr(arg, "dtype", None) is dtype else arg for arg in args]
                return _GROUPED(*inputs, **kwargs).to(dtype)
        return super().dispatch(func, types, args, kwargs)
