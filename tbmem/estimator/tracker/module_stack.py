"""The module whose forward is running, and the one that an autograd node belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleStack:
    """The path of the module that is running, as ``named_modules()`` writes it."""

    def __init__(self) -> None:
        self.current = ""
        self.root = ""
        """What the model itself is called."""
        self._names: dict[int, str] = {}
        self._stack: list[str] = []
        self._of_node: dict[int, tuple[str, int]] = {}
        self._noted = _newest_node()
        self._handles: list[Any] = []

    def register_names(self, model: nn.Module, root: str) -> None:
        """Learn the names of a model's modules.

        Args:
            model: Whose.
            root: What to call the model itself.
        """
        self.root = root
        self._names = {id(module): name or root for name, module in model.named_modules()}

    def common_parent(self, one: str, other: str) -> str:
        """The innermost module that two are in."""
        parts = []
        for part, its in zip(one.split("."), other.split("."), strict=False):
            if part != its:
                break
            parts.append(part)
        return ".".join(parts) or self.root

    def __enter__(self) -> ModuleStack:
        self._handles = [
            register_module_forward_pre_hook(self._begin),
            # a forward that is left early, as checkpointing does, ends as well
            register_module_forward_hook(self._end, always_call=True),
        ]
        return self

    def __exit__(self, *_: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def record_nodes(self, lines: Callable[[], int]) -> None:
        """The module that is running made the autograd nodes that are new; on which lines is asked where there are any.

        An operator's node is made before the operator runs: whoever runs first after it, runs because of it.
        """
        newest = _newest_node()
        if newest > self._noted:
            whose = self.current, lines()
            for node in range(self._noted + 1, newest + 1):
                self._of_node[node] = whose
            self._noted = newest

    def owner_of_node(self, node: int) -> tuple[str, int]:
        """The module that made a node, and its lines; empty and -1 if that is not known."""
        return self._of_node.get(node, ("", -1))

    def _begin(self, module: nn.Module, inputs: Any) -> None:
        del inputs
        self._stack.append(self.current)
        self.current = self._names.get(id(module), self.current)

    def _end(self, module: nn.Module, inputs: Any, output: Any) -> None:
        del module, inputs, output
        if self._stack:
            self.current = self._stack.pop()


def _newest_node() -> int:
    """Number of the autograd node that this thread made last."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]
