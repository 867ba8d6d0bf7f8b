"""Runs scaled_dot_product_attention of fake tensors with the kernel that a GPU would select.

Without a GPU torch selects the math kernel, which materializes the score matrix. On CUDA it selects the first that
supports the inputs: FlashAttention (half precision, no mask, heads up to 256 wide, Ampere or later), the
memory-efficient kernel (not with ``enable_gqa``), math. Data-center Hopper and Blackwell prefer cuDNN's kernel, which
saves the same tensors as FlashAttention.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

from tbmem.estimator.fake_tensors.fake_cuda import patched

_WIDEST_HEAD = 256
_DIMENSIONS = 4
"""Batch, heads, length, width: fused kernels require them."""
_PREFER_CUDNN = ((9, 0), (10, 0))
_ATEN = torch.ops.aten


def kernel_for(
    capability: tuple[int, int],
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None = None,
    causal: bool = False,
) -> str:
    """``'flash'``, ``'cudnn'``, ``'efficient'`` or ``'math'``.

    Source: ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (``can_use_flash_attention``,
    ``can_use_mem_efficient_attention``, ``check_prefer_cudnn_attention``).
    """
    allowed, head = torch.backends.cuda, query.shape[-1]
    if not query.dim() == key.dim() == value.dim() == _DIMENSIONS:
        return "math"
    half = query.dtype in (torch.float16, torch.bfloat16)
    modern = half and capability >= (8, 0) and key.shape[-1] == value.shape[-1] == head <= _WIDEST_HEAD
    square = query.shape[-2] == key.shape[-2] or not causal
    if allowed.flash_sdp_enabled() and modern and mask is None and square:  # type: ignore[no-untyped-call]
        return "flash"
    if query.dtype is torch.bfloat16 and capability < (8, 0):
        return "math"
    trained_mask = mask is not None and mask.requires_grad
    if query.shape[-3] != key.shape[-3]:
        # the memory-efficient kernel does not support grouped-query attention
        cudnn = allowed.cudnn_sdp_enabled() and modern and capability in _PREFER_CUDNN  # type: ignore[no-untyped-call]
        return "cudnn" if cudnn and square and not trained_mask else "math"
    efficient = capability >= (5, 0) and (half or query.dtype is torch.float32) and not trained_mask
    return "efficient" if efficient and allowed.mem_efficient_sdp_enabled() else "math"  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def gpu_attention(capability: tuple[int, int], chosen: set[str]) -> Iterator[None]:
    """Within the block attention of CUDA tensors runs the GPU's kernel, whose name is added to ``chosen``."""
    original = F.scaled_dot_product_attention

    def attention(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if query.device.type != "cuda":
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        if torch.is_autocast_enabled("cuda"):
            low = torch.get_autocast_dtype("cuda")
            query, key, value = query.to(low), key.to(low), value.to(low)
            attn_mask = attn_mask.to(low) if attn_mask is not None and attn_mask.is_floating_point() else attn_mask
        name = kernel_for(capability, query, key, value, attn_mask, is_causal)
        chosen.add(name)
        if name in ("flash", "cudnn"):
            # both save the output and one value per row of scores
            return _flash(query, key, value, dropout_p, is_causal, scale)
        if enable_gqa:
            groups = query.shape[1] // key.shape[1]
            key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        inputs = query, key, value
        if name == "math":
            return _ATEN._scaled_dot_product_attention_math(*inputs, attn_mask, dropout_p, is_causal, scale=scale)[0]
        mask = attn_mask if attn_mask is None else _efficient_mask(attn_mask, query, key)
        training = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
        kernel = _ATEN._scaled_dot_product_efficient_attention
        return kernel(*inputs, mask, training, dropout_p, is_causal, scale=scale)[0]

    with patched(F, "scaled_dot_product_attention", attention):
        yield


def _flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, causal: bool, scale: float | None
) -> torch.Tensor:
    head = query.shape[-1]
    scale = head**-0.5 if scale is None else scale
    padding = -head % 8
    if padding:
        query, key, value = (F.pad(tensor, (0, padding)) for tensor in (query, key, value))
    kernel = _ATEN._scaled_dot_product_flash_attention
    output: torch.Tensor = kernel(query, key, value, dropout, causal, False, scale=scale)[0]
    return output[..., :head] if padding else output


def _efficient_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """The mask as an additive one, padded for the memory-efficient kernel."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    padding = -mask.shape[-1] % 16
    if padding:  # the kernel reads blocks of 16
        mask = F.pad(mask, (0, padding))[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:-1], key.shape[-2])
