"""In a process that compiles nothing: torch's compiler is loaded when somebody asks it for something, not before.

Loading ``torch._dynamo`` takes as long as loading torch. Fake tensors want one setting of it and a name for what has
none, optimizers and FSDP want it to leave them alone: stand-ins for two of its modules answer that much.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

_PACKAGE = "torch._dynamo"
_SOURCE = f"{_PACKAGE}.source"


def load_compiler_later() -> None:
    """Put the stand-ins in place, where the compiler is not loaded yet."""
    spec = None if _PACKAGE in sys.modules else importlib.util.find_spec(_PACKAGE)
    if spec is None:
        return
    package = importlib.util.module_from_spec(spec)
    package.__class__ = _Package
    sys.modules[_PACKAGE] = package
    setattr(torch, "_dynamo", package)  # noqa: B010  # torch declares a module of its own there
    importlib.import_module(f"{_PACKAGE}.config")
    # whoever imports another part of it asks where, and gets the whole
    del package.__path__
    sys.modules[_SOURCE] = _Source(_SOURCE)


class _Package(types.ModuleType):
    """The package itself, before its code has run."""

    @staticmethod
    def disable(function: Callable[..., Any] | None = None, *_: Any, **__: Any) -> Callable[..., Any]:
        """A function that is not to be compiled: none is."""
        return function if function is not None else _Package.disable

    @staticmethod
    def graph_break(*_: Any, **__: Any) -> None:
        """No graph, no break."""

    class trace_rules:  # torch's name
        """What is to be compiled, if anything."""

        @staticmethod
        def clear_lru_cache() -> None:
            """Nobody has asked for it yet."""

    def __getattr__(self, name: str) -> Any:
        if type(self) is _Package and (spec := importlib.util.find_spec(_PACKAGE)) is not None and spec.loader:
            self.__class__ = types.ModuleType  # type: ignore[assignment]
            self.__path__ = list(spec.submodule_search_locations or ())
            sys.modules.pop(_SOURCE, None)
            spec.loader.exec_module(self)
        return getattr(self, name)


class _Source(types.ModuleType):
    """Where the compiler says that tensors come from."""

    class ConstantSource:
        """Anything's."""

        def __init__(self, name: str) -> None:
            self.name = name

    class RandomValueSource:
        """Nothing's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        sys.modules[_PACKAGE].eval_frame  # noqa: B018  # loads it
        vars(self).update(vars(importlib.import_module(_SOURCE)))
        self.__class__ = types.ModuleType  # type: ignore[assignment]
        return getattr(self, name)
