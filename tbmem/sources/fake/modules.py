"""Forwards begin and end; whose forward is running, and whose backward an autograd node belongs to, come out."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModuleStack:
    """The path of the module that is running, as ``named_modules()`` writes it."""

    def __init__(self) -> None:
        self.current = ""
        self._names: dict[int, str] = {}
        self._stack: list[str] = []
        self._of_node: dict[int, tuple[str, int]] = {}
        self._handles: list[Any] = []

    def name(self, model: nn.Module) -> None:
        """Learn the names of a model's modules; the model itself is called by its class."""
        self._names = {id(module): name or type(model).__name__ for name, module in model.named_modules()}

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

    def note(self, node: int, stack: int) -> None:
        """The module that is running made an autograd node with this number, on these lines."""
        self._of_node[node] = self.current, stack

    def of(self, node: int) -> tuple[str, int]:
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
