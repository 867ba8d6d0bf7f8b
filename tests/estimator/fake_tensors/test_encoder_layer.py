"""Fused layers in evaluation mode hold what torch's own allocator holds for them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from tbmem.analysis.estimates.fit import Estimate
from tbmem.model.gpus import gpu_named
from tests.estimator.peaks import estimates_of

A100 = gpu_named("a100-80gb")
MEASURED = {
    "norm_first": (96_653_312, 136_314_880),
    "norm_last": (85_105_664, 111_149_056),
    "causal": (97_754_112, 132_120_576),
    "padded": (93_543_424, 132_120_576),
    "attention": (59_904_000, 69_206_016),
    "attention_with_weights": (93_458_432, 106_954_752),
}
"""Peaks of allocated and reserved memory in bytes, of torch 2.14.1 on a simulated A100, for 64 samples in float32."""


def _given(model: nn.Module) -> Any:
    return model, torch.zeros(64, 128, 256)


def _layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, **options)


def norm_first() -> Any:
    return _given(nn.Sequential(*[_layer(norm_first=True) for _ in range(4)]))


def norm_last() -> Any:
    return _given(nn.TransformerEncoder(_layer(activation="gelu"), 3))


class Masked(nn.Module):
    def __init__(self, padded: bool) -> None:
        super().__init__()
        self.layers = nn.TransformerEncoder(_layer(), 3, enable_nested_tensor=False)
        self.padded = padded
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(128))

    def forward(self, values: torch.Tensor) -> Any:
        if self.padded:
            padding = torch.zeros(values.shape[:2], dtype=torch.bool, device=values.device)
            return self.layers(values, src_key_padding_mask=padding)
        return self.layers(values, mask=self.mask, is_causal=True)


def causal() -> Any:
    return _given(Masked(padded=False))


def padded() -> Any:
    model = Masked(padded=True)
    del model.mask
    return _given(model)


class Attends(nn.Module):
    def __init__(self, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(256, 8, batch_first=True), weights

    def forward(self, values: torch.Tensor) -> Any:
        return self.attention(values, values, values, need_weights=self.weights)[0]


def attention() -> Any:
    return _given(Attends(weights=False))


def attention_with_weights() -> Any:
    return _given(Attends(weights=True))


@cache
def estimates() -> dict[str, Estimate]:
    return estimates_of(__name__, MEASURED, A100, inference=True)


@pytest.mark.parametrize("name", MEASURED)
def test_a_fused_layer_has_the_peaks_that_were_measured(name: str) -> None:
    estimate = estimates()[name]

    assert (estimate.peak_allocated, estimate.peak_reserved) == MEASURED[name]
