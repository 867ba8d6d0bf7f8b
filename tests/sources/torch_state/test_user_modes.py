"""The program's modes and tensor subclasses see the program's calls of torch, not tbmem's."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tbmem import MemoryCallback
from tbmem.interruption import _OURS
from tbmem.sources.torch_state.user_modes import Unseen, end_unseen

Seen = list[str]
_PROGRAMS = ("_record_function", "detach")
"""What passes through tbmem's code and is the program's: ranges of its optimizer, and tensors that it saves."""


def _note(seen: Seen, call: object) -> None:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    if frame is not None and not any(name in str(call) for name in _PROGRAMS):
        seen.append(f"{call} in {frame.f_code.co_name}")


def _function_mode(seen: Seen) -> Any:
    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _note(seen, func)
            return func(*args, **(kwargs or {}))

    return Mode()


def _dispatch_mode(seen: Seen) -> Any:
    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _note(seen, func)
            return func(*args, **(kwargs or {}))

    return Mode()


@pytest.mark.parametrize("make", [_function_mode, _dispatch_mode], ids=["function mode", "dispatch mode"])
def test_a_mode_around_the_loop_sees_no_call_of_tbmem_s(make: Callable[[Seen], Any], tmp_path: Path) -> None:
    # given a leak, so that windows, looks and names of tensors are all at work
    seen: Seen = []
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    optimizer = torch.optim.Adam(model.parameters())
    kept: list[torch.Tensor] = []

    # when
    with make(seen), MemoryCallback(run={"logdir": str(tmp_path)}) as memory:
        memory.watch(model, optimizer)
        for _ in range(150):
            model(torch.randn(16, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            kept.append(torch.zeros(100_000))
            time.sleep(0.01)  # where readings of malloc are dear, as in a large heap, short steps have few
            memory.step()

    # then
    assert seen == []
    assert memory.summary is not None
    assert memory.summary.traces
    assert memory.findings


def test_a_subclass_that_refuses_calls_is_not_called() -> None:
    # given
    class Refusing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise RuntimeError("nobody calls me")

    tensor = torch.zeros(3).as_subclass(Refusing)
    # when / then
    with Unseen():
        assert tensor.untyped_storage().nbytes() == 12
    with pytest.raises(RuntimeError, match="nobody calls me"):
        tensor.sum()


def test_a_block_that_an_exception_has_left_open_can_be_ended() -> None:
    # given an exception that came after the block had begun, and before Python knew how to end it
    Unseen().__enter__()
    assert not torch._C._is_torch_function_enabled()
    # when
    end_unseen()
    # then
    assert torch._C._is_torch_function_enabled()


def test_modes_are_back_after_the_block_and_after_an_error_in_it() -> None:
    # given
    calls: list[object] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return func(*args, **(kwargs or {}))

    # when
    with Counting():
        with contextlib.suppress(ZeroDivisionError), Unseen(), Unseen():
            torch.zeros(1)
            raise ZeroDivisionError
        assert calls == []
        torch.zeros(1)
    # then
    assert len(calls) == 1
