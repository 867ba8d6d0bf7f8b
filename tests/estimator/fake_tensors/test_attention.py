"""Which kernel a GPU takes for an attention, by the rules of torch's own choice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tbmem.estimator.fake_tensors import attention
from tbmem.estimator.fake_tensors.attention import Attention, kernel_for
from tbmem.estimator.worker import simulate_jobs
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun

HALF, SINGLE = torch.bfloat16, torch.float32
AMPERE, HOPPER, TURING, ADA = (8, 0), (9, 0), (7, 5), (8, 9)
GROUPED = "efficient" if attention._VERSION >= (2, 14) else "math"


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
    dropout: float = 0.0,
    across: bool = False,
) -> str:
    query, key, value = (
        torch.empty(2, number, tokens, wide, dtype=dtype, device="meta", requires_grad=True)
        for number, tokens, wide in ((8, 16, width), (heads, length, width), (heads, length, values))
    )
    if across:
        query = query.mT.contiguous().mT
    given = torch.empty(16, length, dtype=torch.bool, device="meta") if mask else None
    return kernel_for(capability, Attention(query, key, value, given, dropout, causal))


@pytest.mark.parametrize(
    ("capability", "dtype", "asked", "kernel"),
    [
        (AMPERE, HALF, {}, "flash"),
        (AMPERE, SINGLE, {}, "efficient"),
        (AMPERE, HALF, {"mask": True}, "efficient"),
        (AMPERE, HALF, {"width": 512, "values": 512}, "efficient"),
        (AMPERE, HALF, {"values": 32}, "efficient"),
        (AMPERE, HALF, {"length": 32}, "efficient"),
        (AMPERE, HALF, {"length": 32, "causal": False}, "flash"),
        (AMPERE, SINGLE, {"across": True}, "math"),
        (AMPERE, SINGLE, {"width": 30, "values": 30}, "math"),
        (ADA, HALF, {"width": 208, "values": 208}, "efficient"),
        (TURING, HALF, {}, "math"),
        (TURING, torch.float16, {}, "efficient"),
        (TURING, SINGLE, {"width": 30, "values": 30}, "efficient"),
        (HOPPER, HALF, {}, "cudnn"),
        (HOPPER, HALF, {"mask": True}, "cudnn"),
        (HOPPER, HALF, {"dropout": 0.1}, "flash"),
        (HOPPER, HALF, {"width": 20, "values": 20}, "flash"),
        (HOPPER, HALF, {"width": 192, "values": 192}, "flash"),
        (HOPPER, SINGLE, {}, "efficient"),
        # heads that share keys and values
        (AMPERE, HALF, {"heads": 2}, "flash"),
        (AMPERE, SINGLE, {"heads": 2}, GROUPED),
        (HOPPER, HALF, {"heads": 2, "mask": True}, "cudnn"),
        (AMPERE, HALF, {"heads": 2, "mask": True}, GROUPED),
    ],
)
def test_the_kernel_follows_what_it_is_asked(
    capability: tuple[int, int], dtype: torch.dtype, asked: dict[str, Any], kernel: str
) -> None:
    assert choice(capability, dtype, **asked) == kernel


def test_kernels_that_were_switched_off_are_not_taken() -> None:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert choice(HOPPER, HALF) == "math"


class Turned(nn.Module):
    """A linear layer, applied twice to inputs that do not lie side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(self.layer(values.transpose(0, 1)).transpose(0, 1))
        return result


def turned() -> Any:
    return Turned(), (torch.zeros(5, 7, 64),)


def test_autocast_keeps_a_weight_for_inputs_that_lie_otherwise() -> None:
    # given
    job = Job(model=f"{__name__}:turned", search_path=str(Path(__file__).parents[3]), inference=True, amp="float16")
    # when
    (run,) = simulate_jobs([job])
    assert isinstance(run, SimulatedRun), run
    # then the weight is cast once in each of two steps, and its input is copied: it is folded into rows
    casts = (run.size == 64 * 64 * 2) & (run.operator == run.operators.index("aten::_to_copy"))
    assert run.step[casts].tolist() == [0, 1]
    assert "aten::clone" in run.operators
    assert "aten::bmm" not in run.operators
