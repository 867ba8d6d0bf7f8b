"""Steps of all optimizers of the process, seen through one global hook of torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class OptimizerHook:
    """Calls a listener at each step of any optimizer, from now on until ``remove()``.

    torch iterates over its hooks while they run, and raises into the training if one is removed meanwhile: the
    profiler does so at its last window, which under ``tbmem run`` ends inside of a hook. So all listeners share one
    hook of torch's, which stays until the last of them has gone.

    Args:
        listener: Called with the optimizer; not where a graph is being traced, which must not hold what we do.
    """

    _listeners: tuple[OptimizerHook, ...] = ()
    _handle: Any = None

    def __init__(self, listener: Callable[[torch.optim.Optimizer], None]) -> None:
        self._listener = listener
        OptimizerHook._listeners += (self,)
        if OptimizerHook._handle is None:
            OptimizerHook._handle = register_optimizer_step_post_hook(_after_step)

    def remove(self) -> None:
        """Listen no longer."""
        OptimizerHook._listeners = tuple(hook for hook in OptimizerHook._listeners if hook is not self)
        if not OptimizerHook._listeners and OptimizerHook._handle is not None:
            OptimizerHook._handle.remove()
            OptimizerHook._handle = None

    @classmethod
    def notify(cls, optimizer: torch.optim.Optimizer) -> None:
        """Call all listeners."""
        for hook in cls._listeners:
            hook._listener(optimizer)


def _after_step(optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        OptimizerHook.notify(optimizer)


class UpdateTracker:
    """Tells steps that update the model from those that only accumulate gradients; whichever optimizer it is."""

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
        """Take the hook away; may be repeated."""
        self._hook.remove()

    def _after_step(self, _optimizer: torch.optim.Optimizer) -> None:
        self._stepped = True
