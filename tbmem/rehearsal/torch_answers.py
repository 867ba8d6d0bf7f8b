"""What torch asks of the device, answered for one that computes nothing: are a distribution's arguments valid."""

from __future__ import annotations

from functools import wraps

import torch


def valid_distributions() -> None:
    """Let ``torch.distributions`` take what was computed on the device for valid: each check of it would fail there.

    The check itself is made, so that what it allocates is allocated.
    """
    is_all_true = torch._is_all_true

    @wraps(is_all_true)
    def _is_all_true(checked: torch.Tensor) -> torch.Tensor:
        answer = is_all_true(checked)
        return torch.ones((), dtype=torch.bool) if checked.is_cuda else answer

    torch.__dict__["_is_all_true"] = _is_all_true
