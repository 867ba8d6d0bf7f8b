"""AdamW whose state takes a byte per value: only what it holds, not what it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_BLOCK = 256
_SMALLEST = 4096


class EightBitAdamW(torch.optim.Optimizer):
    """Holds the state that bitsandbytes' AdamW8bit holds: bytes and a scale for each 256; small tensors in float32.

    Its kernel works in place.
    """

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make the state of parameters that have none yet."""
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    self.state[parameter] = self._new_state(parameter)

    @staticmethod
    def _new_state(parameter: torch.Tensor) -> dict[str, torch.Tensor]:
        count = parameter.numel()
        if count < _SMALLEST:
            return {name: torch.zeros_like(parameter, dtype=torch.float32) for name in ("first", "second")}
        scales = (count + _BLOCK - 1) // _BLOCK
        state = {}
        for name in ("first", "second"):
            state[name] = torch.zeros_like(parameter, dtype=torch.uint8)
            state[f"{name}_scales"] = torch.zeros(scales, dtype=torch.float32, device=parameter.device)
        return state
