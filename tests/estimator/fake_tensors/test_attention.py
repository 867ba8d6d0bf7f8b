"""Which kernel a GPU takes for an attention, by the rules of torch's own choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tbmem.estimator.fake_tensors.attention import kernel_for

HALF, SINGLE = torch.bfloat16, torch.float32
AMPERE, HOPPER, TURING = (8, 0), (9, 0), (7, 5)


def choice(
    capability: tuple[int, int],
    dtype: torch.dtype,
    *,
    heads: int = 8,
    length: int = 16,
    width: int = 64,
    values: int = 64,
    mask: bool = False,
    causal: bool = True,
) -> str:
    query, key, value = (
        torch.empty(2, number, tokens, wide, dtype=dtype, device="meta")
        for number, tokens, wide in ((8, 16, width), (heads, length, width), (heads, length, values))
    )
    given = torch.empty(16, length, dtype=torch.bool, device="meta") if mask else None
    return kernel_for(capability, query, key, value, given, causal)


@pytest.mark.parametrize(
    ("capability", "dtype", "asked", "kernel"),
    [
        (HOPPER, HALF, {}, "flash"),
        (HOPPER, SINGLE, {}, "efficient"),
        (HOPPER, HALF, {"mask": True}, "efficient"),
        (HOPPER, HALF, {"width": 512, "values": 512}, "efficient"),
        (HOPPER, HALF, {"values": 32}, "efficient"),
        (HOPPER, HALF, {"length": 32}, "efficient"),
        (HOPPER, HALF, {"length": 32, "causal": False}, "flash"),
        (TURING, HALF, {}, "math"),
        (TURING, torch.float16, {}, "efficient"),
        # heads that share keys and values
        (HOPPER, HALF, {"heads": 2}, "flash"),
        (HOPPER, SINGLE, {"heads": 2}, "math"),
        (HOPPER, HALF, {"heads": 2, "mask": True}, "cudnn"),
        (AMPERE, HALF, {"heads": 2, "mask": True}, "math"),
    ],
)
def test_the_kernel_follows_what_it_is_asked(
    capability: tuple[int, int], dtype: torch.dtype, asked: dict[str, Any], kernel: str
) -> None:
    assert choice(capability, dtype, **asked) == kernel


def test_kernels_that_were_switched_off_are_not_taken() -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert choice(HOPPER, HALF) == "math"
