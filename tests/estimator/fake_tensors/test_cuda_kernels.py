"""Kernels that torch lacks here have the shapes and the memory of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from tbmem.analysis.estimates.fit import Estimate
from tbmem.estimator.fake_tensors import cuda_kernels
from tbmem.estimator.fake_tensors.cuda_kernels import has_rms_norm, register_kernels
from tbmem.model.gpus import gpu_named
from tests.estimator.peaks import estimates_of

H100 = gpu_named("h100-80gb")
MEASURED = {
    "rms_norms": (152_788_992, 205_520_896),
    "silus": (152_573_952, 205_520_896),
    "mishes": (152_573_952, 205_520_896),
}
"""Peaks of allocated and reserved memory in bytes, of torch 2.14.1 on a simulated H100, of three steps in bfloat16."""


def _training(*layers: nn.Module) -> Any:
    model = nn.Sequential(nn.Linear(512, 512), *layers)
    return model, torch.zeros(8192, 512), lambda output, _: output.float().mean()


def rms_norms() -> Any:
    return _training(*(nn.RMSNorm(512) for _ in range(6)))


def silus() -> Any:
    return _training(*(nn.SiLU() for _ in range(6)))


def mishes() -> Any:
    return _training(*(nn.Mish() for _ in range(6)))


@cache
def estimates() -> dict[str, Estimate]:
    return estimates_of(__name__, MEASURED, H100, dtype="bfloat16", steps=3)


@pytest.mark.parametrize("name", MEASURED)
def test_what_cuda_has_a_kernel_of_keeps_what_was_measured(name: str) -> None:
    if name == "rms_norms" and not has_rms_norm():
        pytest.skip("this torch has no kernel of it")

    estimate = estimates()[name]

    assert (estimate.peak_allocated, estimate.peak_reserved) == MEASURED[name]


@pytest.fixture
def kernels() -> Iterator[None]:
    """What torch lacks here, for one test."""
    assert not cuda_kernels._libraries
    register_kernels()
    yield
    while cuda_kernels._libraries:
        cuda_kernels._libraries.pop()._destroy()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("bias", [True, False])
def test_a_gru_cell_has_the_shapes_of_torchs_own(bias: bool, kernels: None) -> None:
    # given 5 samples and 7 hidden values, with torch's CPU cell as reference
    state = torch.zeros(5, 7, device="meta", requires_grad=True)
    gates = [torch.zeros(5, 21, device="meta", requires_grad=True) for _ in range(2)]
    biases: list[Any] = [torch.zeros(21, device="meta", requires_grad=True) for _ in range(2)] if bias else []
    expected = torch.nn.GRUCell(3, 7, bias=bias)(torch.zeros(5, 3), torch.zeros(5, 7))
    # when
    after, kept = torch.ops.aten._thnn_fused_gru_cell(*gates, state, *(biases or (None, None)))
    after.sum().backward()
    # then
    assert after.shape == expected.shape
    assert kept.shape == (5, 5 * 7)
    for given in (state, *gates, *biases):
        assert given.grad is not None
        assert given.grad.shape == given.shape
