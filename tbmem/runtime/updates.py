"""Optimizers of the process go in, whichever they are; whether one has stepped since it was last asked comes out."""

from __future__ import annotations

import torch

from tbmem.runtime.optimizer_hook import OptimizerHook


class UpdateWatch:
    """Tells steps that update the model from those that only gather gradients; whichever optimizer it is."""

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
