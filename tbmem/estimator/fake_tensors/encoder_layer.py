"""Runs the fused encoder layer and attention of ``torch.nn``, which have fake versions without what they allocate.

Without gradients ``nn.TransformerEncoderLayer`` and ``nn.MultiheadAttention`` are one operator each in evaluation mode.
Source: ``transformer.cpp`` and ``cuda/attention.cu`` of ``aten/src/ATen/native/transformers``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tbmem.estimator.fake_tensors.fake_cuda import patched

_OF_KEYS = 1
"""Kind of a mask that has a value for each key, not for each pair."""
_FUSED_WIDTH = 8
"""Heads are multiples of this for the fused attention."""


@contextlib.contextmanager
def fused_layers() -> Iterator[None]:
    """Within the block the fused layers of CUDA tensors run as the operators that their kernels consist of."""
    with contextlib.ExitStack() as stack:
        for name, function in (
            ("_transformer_encoder_layer_fwd", _encoder_layer),
            ("_native_multi_head_attention", _attention),
        ):
            stack.enter_context(patched(torch, name, _for_cuda(getattr(torch, name), function)))
        yield


def _for_cuda(original: Any, function: Any) -> Any:
    def run(first: torch.Tensor, *rest: Any) -> Any:
        is_plain = first.device.type == "cuda" and not first.is_nested and first.dim() == 3
        return function(first, *rest) if is_plain else original(first, *rest)

    return run


def _encoder_layer(
    source: torch.Tensor,
    width: int,
    heads: int,
    weight: torch.Tensor,
    bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    gelu: bool,
    norm_first: bool,
    epsilon: float,
    *parameters: Any,
) -> torch.Tensor:
    """Arguments as of ``torch._transformer_encoder_layer_fwd``; attention and feed-forward add to their inputs."""
    *norms, first, first_bias, second, second_bias, mask, mask_type = parameters
    before, after = ((width,), *norms[:2], epsilon), ((width,), *norms[2:], epsilon)
    x = F.layer_norm(source, *before) if norm_first else source
    x = _attention(x, x, x, width, heads, weight, bias, out_weight, out_bias, mask, False, True, mask_type)[0]
    x.add_(source)
    if not norm_first:
        x = F.layer_norm(x, *before)
    between = x
    if norm_first:
        x = F.layer_norm(x, *after)
    inner = torch._addmm_activation(first_bias, x.flatten(0, 1), first.t(), use_gelu=gelu)
    x = torch.addmm(second_bias, inner, second.t()).view_as(source)
    del inner
    x.add_(between)
    return x if norm_first else F.layer_norm(x, *after)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    width: int,
    heads: int,
    weight: torch.Tensor,
    bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Arguments as of ``torch._native_multi_head_attention``; without a fused kernel all scores are materialized."""
    samples, length = query.shape[:2]
    if query is key is value and mask is None and not need_weights and width // heads % _FUSED_WIDTH == 0:
        packed = F.linear(query, weight, bias).view(samples, length, 3, heads, -1).transpose(1, 3)
        joined = (
            F.scaled_dot_product_attention(packed[:, :, 0], packed[:, :, 1], packed[:, :, 2])
            .transpose(1, 2)
            .reshape(samples, length, width)
        )
        return F.linear(joined, out_weight, out_bias), None
    if mask is not None and mask_type != _OF_KEYS:
        mask = mask.expand(samples, heads, length, length)
    projected = torch.matmul(query, weight.t())
    packed = projected.new_empty(3, samples * heads, length, width // heads)
    del projected
    scores = torch.bmm(packed[0], packed[1].transpose(1, 2))
    if mask is not None:
        as_bool = torch.empty(mask.shape, dtype=torch.bool, device=mask.device)
        scores = torch.empty_like(scores)
        del as_bool
    # the result replaces the queries
    context = torch.bmm(scores, packed[2], out=packed[0]).view(samples, heads, length, -1)
    kept = scores if need_weights else None
    del scores
    result = torch.addmm(out_bias, context.transpose(1, 2).reshape(-1, width), out_weight.t()).view_as(query)
    if kept is None:
        return result, None
    kept = kept.view(samples, heads, length, length)
    return result, kept.sum(1).div_(heads) if average else kept
