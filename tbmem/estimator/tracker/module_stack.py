"""Tracks the module whose forward is running, and the module of each autograd node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleStack:
    """Path of the running module, as in ``named_modules()``."""

    def __init__(self) -> None:
        self.current = ""
        self.root = ""
        """Name of the model itself."""
        self._names: dict[int, str] = {}
        self._stack: list[str] = []
        self._of_node: dict[int, tuple[str, int]] = {}
        self._noted = _newest_node()
        self._handles: list[Any] = []

    def register_names(self, model: nn.Module, root: str) -> None:
        """Register the paths of a model's modules; ``root`` is the name of the model itself."""
        self.root = root
        self._names = {id(module): name or root for name, module in model.named_modules()}

    def common_parent(self, first: str, second: str) -> str:
        """The innermost module that contains both."""
        parts = []
        for part, other in zip(first.split("."), second.split("."), strict=False):
            if part != other:
                break
            parts.append(part)
        return ".".join(parts) or self.root

    def __enter__(self) -> ModuleStack:
        self._handles = [
            register_module_forward_pre_hook(self._begin),
            # also called for a forward that raises, as recomputation of checkpointing does
            register_module_forward_hook(self._end, always_call=True),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def record_nodes(self, lines: Callable[[], int]) -> None:
        """Attribute new autograd nodes to the running module, and to ``lines()`` if there are any.

        An operator's node is created before the operator runs.
        """
        newest = _newest_node()
        if newest > self._noted:
            self._of_node.update(dict.fromkeys(range(self._noted + 1, newest + 1), (self.current, lines())))
            self._noted = newest

    def owner_of_node(self, node: int) -> tuple[str, int]:
        """The module that created a node, and its lines; empty and -1 if unknown."""
        return self._of_node.get(node, ("", -1))

    def _begin(self, module: nn.Module, _: Any) -> None:
        self._stack.append(self.current)
        self.current = self._names.get(id(module), self.current)

    def _end(self, *_: Any) -> None:
        if self._stack:
            self.current = self._stack.pop()


def _newest_node() -> int:
    """Sequence number of the autograd node created last by this thread."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]
