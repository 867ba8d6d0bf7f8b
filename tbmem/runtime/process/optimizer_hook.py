"""Observes the steps of all optimizers of the process through one global hook of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class OptimizerHook:
    """Calls a listener at each step of any optimizer, until ``remove()``; not while torch.compile traces a graph.

    torch raises into the training loop if a hook is removed while hooks run, which happens when the profiler's last
    window ends under ``tbmem run``. Therefore all listeners share one torch hook, removed with the last of them.
    """

    _hooks: tuple[OptimizerHook, ...] = ()
    _handle: Any = None

    def __init__(self, listener: Callable[[torch.optim.Optimizer], None]) -> None:
        self._listener = listener
        OptimizerHook._hooks += (self,)
        if OptimizerHook._handle is None:
            OptimizerHook._handle = register_optimizer_step_post_hook(_after_step)

    def remove(self) -> None:
        """Stop calling the listener; may be called again."""
        OptimizerHook._hooks = tuple(hook for hook in OptimizerHook._hooks if hook is not self)
        if not OptimizerHook._hooks and OptimizerHook._handle is not None:
            OptimizerHook._handle.remove()
            OptimizerHook._handle = None


def _after_step(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        for hook in OptimizerHook._hooks:
            hook._listener(optimizer)


class UpdateTracker:
    """Distinguishes steps that update the model from those that only accumulate gradients."""

    def __init__(self) -> None:
        self._stepped: bool | None = None
        self._hook = OptimizerHook(self._after_step)

    def take(self) -> bool | None:
        """Whether any optimizer has stepped since the last call; ``None`` as long as none ever has."""
        stepped = self._stepped
        if stepped:
            self._stepped = False
        return stepped

    def close(self) -> None:
        """Remove the hook; may be called again."""
        self._hook.remove()

    def _after_step(self, _optimizer: torch.optim.Optimizer) -> None:
        self._stepped = True
