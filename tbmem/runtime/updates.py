"""Optimizers of the process go in, whichever they are; whether one has stepped since it was last asked comes out."""

from __future__ import annotations

from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook


class UpdateWatch:
    """Tells steps that update the model from those that only gather gradients; through torch's public global hook."""

    def __init__(self) -> None:
        self._stepped: bool | None = None
        self._hook: Any = register_optimizer_step_post_hook(self._after_optimizer_step)

    def take(self) -> bool | None:
        """Whether any optimizer has stepped since the last call; ``None`` as long as none ever has."""
        stepped = self._stepped
        if stepped:
            self._stepped = False
        return stepped

    def close(self) -> None:
        """Take the hook away; may be repeated."""
        self._hook.remove()

    def _after_optimizer_step(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._stepped = True
