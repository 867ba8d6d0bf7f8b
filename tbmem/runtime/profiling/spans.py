"""Notes when phases and calls of modules begin and end during a recording."""

from __future__ import annotations

import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from tbmem.model.span import Span


class PhaseSpans:
    """Phases that a program names; each is a range of torch.profiler as well, which viewers show."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.is_on = True
        self._open: Counter[str] = Counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Note a block of code as a phase; within one of the same name it is part of that."""
        name = str(name)  # within the block nothing is to be raised for what is none
        if not self.is_on or self._open[name]:
            yield
            return
        self._open[name] += 1
        with torch.profiler.record_function(name):
            began = time.time_ns()
            try:
                yield
            finally:
                self.spans.append(Span(name, began, time.time_ns()))
                self._open[name] -= 1


class ModuleSpans:
    """Calls of the modules of a model, noted by hooks of torch that are set for the duration of a recording.

    A compiled model gets none: they would have it compiled again. Calls in other threads are not noted.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        self.spans: list[Span] = []
        modules = list(model.named_modules()) if model is not None else []
        if any(_is_compiled(module) for _, module in modules):
            modules = []
        self.kinds = {path: type(module).__name__ for path, module in modules}
        self._paths = weakref.WeakKeyDictionary({module: path for path, module in modules})
        self._open: list[tuple[int, int]] = []
        """Calls that have begun: the ``id`` of the module, and when."""
        self._thread = threading.get_ident()
        self._hooks: list[Any] = []

    def begin(self) -> None:
        """Set the hooks, which keep no tensor."""
        if self._paths and not self._hooks:
            self._hooks = [
                register_module_forward_pre_hook(self._before),
                register_module_forward_hook(self._after, always_call=True),
            ]

    def end(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self._paths.clear()
        self._open.clear()

    def _before(self, module: torch.nn.Module, _: Any) -> None:
        if module in self._paths and threading.get_ident() == self._thread:
            self._open.append((id(module), time.time_ns()))

    def _after(self, module: torch.nn.Module, *_: Any) -> None:
        path = self._paths.get(module)
        if path is None or threading.get_ident() != self._thread:
            return
        while self._open:  # an exception may have left out the end of an inner call
            number, began = self._open.pop()
            if number == id(module):
                self.spans.append(Span(path, began, time.time_ns()))
                return


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
