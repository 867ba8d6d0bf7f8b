"""Within a block of code torch.cuda answers as if there were a GPU; nothing is computed on one.

Only for a process of its own: what is patched is put back at the end of the block, but another thread would see it.
"""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor


class _Pretended:
    """A stream or an event: whatever is asked of it has happened."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index = 0
        self.device_type = 1
        self.stream_id = 0
        self.cuda_stream = 0

    def __enter__(self) -> _Pretended:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing

    def record_event(self, event: Any = None) -> Any:
        """An event."""
        return event or _Event()

    def query(self) -> bool:
        """Done."""
        return True

    def elapsed_time(self, other: Any) -> float:
        """No time."""
        del other
        return 0.0


class _Stream(_Pretended):
    pass


class _Event(_Pretended):
    pass


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _answer(value: Any) -> Callable[..., Any]:
    """A function of its own for each name: torch's compiler refuses one that has two."""
    return lambda *_, **__: value


@contextlib.contextmanager
def pretend_cuda(devices: int, capability: tuple[int, int], total: int) -> Iterator[None]:
    """torch.cuda has so many devices.

    Args:
        devices: Number of GPUs of the pretended machine.
        capability: Of each: 9.0 is Hopper.
        total: Bytes of each.
    """
    with contextlib.ExitStack() as stack:
        for target, name, value in _patches(devices, capability, total):
            stack.enter_context(patched(target, name, value))
        yield


@contextlib.contextmanager
def not_traced() -> Iterator[None]:
    """transformers, where it is loaded, takes fake tensors for plain ones.

    It holds them for a trace otherwise, and takes the paths of ``torch.export``: masks that training does without, and
    with them another attention kernel.
    """
    utils: Any = sys.modules.get("transformers.utils.import_utils")
    if not hasattr(utils, "is_fake_tensor"):
        yield
        return
    with patched(utils, "is_fake_tensor", lambda _: False):
        yield


@contextlib.contextmanager
def patched(target: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute has another value within the block."""
    had, old = hasattr(target, name), getattr(target, name, None)
    setattr(target, name, value)
    try:
        yield
    finally:
        if had:
            setattr(target, name, old)
        else:
            delattr(target, name)


def _patches(devices: int, capability: tuple[int, int], total: int) -> Iterator[tuple[Any, str, Any]]:
    cuda = torch.cuda
    for name, value in _answers(devices, capability, total).items():
        yield cuda, name, value
    yield cuda.memory, "_record_memory_history", _nothing
    yield torch.Tensor, "record_stream", _nothing
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        yield cuda.nvtx, name, _nothing
    yield torch.accelerator, "is_available", lambda: True
    yield torch.accelerator, "current_accelerator", lambda *_, **__: torch.device("cuda")
    yield torch.accelerator, "device_count", lambda: devices
    yield torch.accelerator, "current_stream", _answer(_Stream())
    yield torch.accelerator, "current_device_index", lambda: 0


def _answers(devices: int, capability: tuple[int, int], total: int) -> dict[str, Any]:
    properties = _properties(capability, total)
    stream = _Stream()
    state = torch.empty(16, dtype=torch.uint8, device="cpu")
    silent = (
        "set_device synchronize _lazy_init init set_stream set_rng_state manual_seed manual_seed_all empty_cache"
        " ipc_collect reset_peak_memory_stats _maybe_exchange_device"
    )
    zero = "memory_allocated max_memory_allocated memory_reserved max_memory_reserved current_device"
    return {
        **{name: _answer(None) for name in silent.split()},
        **{name: _answer(0) for name in zero.split()},
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: devices,
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: capability,
        "get_device_name": lambda *_: properties.name,
        "is_bf16_supported": lambda *_, **__: capability[0] >= 8,
        "Stream": _Stream,
        "Event": _Event,
        "current_stream": lambda *_: stream,
        "default_stream": lambda *_: stream,
        "stream": lambda _: contextlib.nullcontext(),
        "get_rng_state": lambda *_, **__: state,
        "get_rng_state_all": lambda: [],
        "mem_get_info": lambda *_: (total, total),
        "is_current_stream_capturing": lambda: False,
    }


def _properties(capability: tuple[int, int], total: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="pretended GPU",
        major=capability[0],
        minor=capability[1],
        total_memory=total,
        multi_processor_count=132,
        regs_per_multiprocessor=65536,
        warp_size=32,
        max_threads_per_multi_processor=2048,
        L2_cache_size=50 << 20,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        shared_memory_per_multiprocessor=233472,
        gcnArchName="",
        uuid="0",
        is_integrated=0,
        is_multi_gpu_board=0,
    )


@contextlib.contextmanager
def modules_that_move() -> Iterator[None]:
    """``Module.to`` and ``copy.deepcopy`` work for modules of fake tensors within the block."""
    with patched(nn.Module, "_apply", _apply_to(nn.Module._apply)), patched(FakeTensor, "__deepcopy__", _deepcopy):
        yield


def _deepcopy(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Torch's own copies the storage of fake CPU tensors as if it had contents, and then has two."""
    if id(tensor) not in memo:
        with torch.no_grad():
            copied = tensor.detach().clone()
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(copied, tensor.requires_grad) if is_parameter else copied
        memo[id(tensor)].requires_grad_(tensor.requires_grad)
    result: torch.Tensor = memo[id(tensor)]
    return result


_Moved = dict[int, tuple["weakref.ref[torch.Tensor]", torch.Tensor]]


def _apply_to(original: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """``Module.to`` for fake tensors: torch's own swaps tensors in place, which those refuse at random."""

    def _apply(module: nn.Module, function: Callable[[Any], Any], recurse: bool = True) -> nn.Module:
        # nothing may hold the old tensors while new ones are made
        if not any(isinstance(tensor, FakeTensor) for tensor in chain(module.parameters(), module.buffers())):
            return original(module, function, recurse)
        _move_all(module, function, {})
        return module

    return _apply


def _move_all(module: nn.Module, function: Callable[[Any], Any], moved: _Moved) -> None:
    """Children first, as torch does it; what two modules share stays shared."""
    for child in module.children():
        _move_all(child, function, moved)
    for table in (module._parameters, module._buffers):
        for name, tensor in table.items():
            if tensor is None:
                continue
            old, new = moved.get(id(tensor), (None, None))
            if old is None or new is None or old() is not tensor:
                new = _move(tensor, function)
                moved[id(tensor)] = (weakref.ref(tensor), new)
            table[name] = new  # type: ignore[assignment]


def _move(tensor: torch.Tensor, function: Callable[[Any], Any]) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = function(tensor)
    if isinstance(tensor, nn.Parameter) and result is not tensor:
        return nn.Parameter(result, tensor.requires_grad)
    return result
