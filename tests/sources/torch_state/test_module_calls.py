"""The module whose call a stack is in, that of another thread among them."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest
import torch

from tbmem.sources.torch_state.module_calls import outermost_module


class Asking(torch.nn.Module):
    """Finds the module while its forward runs."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[weakref.ref[torch.nn.Module]] = []

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        module = outermost_module(sys._getframe())
        assert module is not None
        self.found.append(weakref.ref(module))
        return batch


def test_of_nested_calls_the_outermost_is_found() -> None:
    # given
    inner = Asking()
    outer = torch.nn.Sequential(torch.nn.Identity(), inner)
    # when
    outer(torch.ones(1))
    inner(torch.ones(1))
    # then
    assert [found() for found in inner.found] == [outer, inner]
    assert outermost_module(sys._getframe()) is None


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="torch.compile is new in torch 2")
def test_a_compiled_module_is_found() -> None:
    inner = Asking()
    compiled = torch.compile(inner, backend="eager")
    compiled.forward = inner.forward  # type: ignore[method-assign]  # what it runs is not the matter
    compiled(torch.ones(1))
    assert inner.found[0]() is compiled


def test_the_module_of_another_thread_is_found_and_nothing_of_its_call_is_kept() -> None:
    # given a call in another thread
    entered, leave = threading.Event(), threading.Event()

    class Waiting(torch.nn.Module):
        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            entered.set()
            leave.wait(20)
            return batch

    module, batch = Waiting(), torch.ones(1)
    kept = weakref.ref(batch)
    thread = threading.Thread(target=module, args=(batch,))
    thread.start()
    entered.wait(20)
    assert thread.ident is not None
    # when
    found = outermost_module(sys._current_frames()[thread.ident])
    # then
    assert found is module
    leave.set()
    thread.join()
    del batch, thread
    gc.collect()
    assert kept() is None
