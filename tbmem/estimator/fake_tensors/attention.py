"""Runs scaled_dot_product_attention of fake tensors with the kernel that a GPU would select.

Without a GPU torch selects the math kernel, which materializes the score matrix. On CUDA it selects the first that
supports the inputs: cuDNN's on data-center Hopper and Blackwell, then FlashAttention, the memory-efficient kernel,
math. cuDNN's saves the same tensors as FlashAttention.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from tbmem.estimator.fake_tensors.fake_cuda import patched

_WIDEST_HEAD, _WIDEST_CUDNN = 256, 128
_DIMENSIONS = 4
"""Batch, heads, length, width: fused kernels require them."""
_PREFER_CUDNN = (9, 10)
"""Major compute capabilities."""
_EFFICIENT_GROUPS = (2, 14)
"""The first version of torch whose memory-efficient kernel supports grouped heads."""
_VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
_ATEN = torch.ops.aten


class Attention(NamedTuple):
    """A call of scaled_dot_product_attention."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None = None
    dropout: float = 0.0
    causal: bool = False

    @property
    def is_half(self) -> bool:
        """Whether its inputs have two bytes a value."""
        return self.query.dtype in (torch.float16, torch.bfloat16)

    @property
    def is_grouped(self) -> bool:
        """Whether several heads share a key."""
        return self.query.shape[-3] != self.key.shape[-3]

    @property
    def is_trained(self) -> bool:
        """Whether a backward pass follows."""
        tensors = (self.query, self.key, self.value)
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

    @property
    def widths(self) -> set[int]:
        """Of its heads."""
        return {tensor.shape[-1] for tensor in (self.query, self.key, self.value)}


def kernel_for(capability: tuple[int, int], call: Attention) -> str:
    """``'flash'``, ``'cudnn'``, ``'efficient'`` or ``'math'``.

    Source: ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (``priority_order``, ``can_use_cudnn_attention``,
    ``can_use_flash_attention``, ``can_use_mem_efficient_attention``).
    """
    allowed = torch.backends.cuda
    dimensions = {tensor.dim() for tensor in (call.query, call.key, call.value)}
    if dimensions != {_DIMENSIONS} or any(tensor.stride(-1) != 1 for tensor in (call.query, call.key, call.value)):
        # fused kernels read rows whose values are side by side
        return "math"
    if allowed.cudnn_sdp_enabled() and _cudnn_takes(capability, call):  # type: ignore[no-untyped-call]
        return "cudnn"
    if allowed.flash_sdp_enabled() and _flash_takes(capability, call):  # type: ignore[no-untyped-call]
        return "flash"
    if allowed.mem_efficient_sdp_enabled() and _efficient_takes(capability, call):  # type: ignore[no-untyped-call]
        return "efficient"
    return "math"


def _cudnn_takes(capability: tuple[int, int], call: Attention) -> bool:
    fits = max(call.widths) <= _WIDEST_CUDNN and not any(width % 8 for width in call.widths)
    in_sixteenths = (call.dropout * 16).is_integer()
    several = call.key.shape[-2] > 1 and (not call.dropout or call.query.shape[-2] > 1)
    trained_mask = call.mask is not None and call.mask.requires_grad
    return capability[0] in _PREFER_CUDNN and call.is_half and fits and in_sixteenths and several and not trained_mask


def _flash_takes(capability: tuple[int, int], call: Attention) -> bool:
    width = call.query.shape[-1]
    small = capability in ((8, 6), (8, 7), (8, 9), (12, 0), (12, 1))
    if small and call.is_trained and width > 192 and (call.dropout or width <= 224):
        return False  # no backward pass for these
    square = call.query.shape[-2] == call.key.shape[-2] or not call.causal
    fits = call.widths == {width} and width <= _WIDEST_HEAD
    return capability >= (8, 0) and call.is_half and fits and call.mask is None and square


def _efficient_takes(capability: tuple[int, int], call: Attention) -> bool:
    if call.query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    if call.query.dtype is torch.bfloat16 and capability < (8, 0):
        return False
    if call.is_grouped and _VERSION < _EFFICIENT_GROUPS:
        return False
    bytes_together = 16 if capability >= (8, 0) or (capability >= (7, 0) and call.is_half) else 1
    aligned = all(width % max(bytes_together // call.query.element_size(), 1) == 0 for width in call.widths)
    trained_mask = call.mask is not None and call.mask.requires_grad
    return capability >= (5, 0) and aligned and call.query.shape[-1] == call.key.shape[-1] and not trained_mask


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
        call = Attention(query, key, value, attn_mask, dropout_p, is_causal)
        name = kernel_for(capability, call)
        chosen.add(name)
        if name in ("flash", "cudnn") and attn_mask is None:
            # both save the output and one value per row of scores
            return _flash(query, key, value, dropout_p, is_causal, scale)
        inputs = query, key, value
        if name == "math":
            if enable_gqa:
                groups = query.shape[1] // key.shape[1]
                inputs = query, key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
            return _ATEN._scaled_dot_product_attention_math(*inputs, attn_mask, dropout_p, is_causal, scale=scale)[0]
        mask = attn_mask if attn_mask is None else _additive_mask(attn_mask, query, key, name)
        if name == "cudnn":
            kernel = _ATEN._scaled_dot_product_cudnn_attention
            return kernel(*inputs, mask, call.is_trained, dropout_p, is_causal, False, scale=scale)[0]
        kernel = _ATEN._scaled_dot_product_efficient_attention
        return kernel(*inputs, mask, call.is_trained, dropout_p, is_causal, scale=scale)[0]

    with patched(F, "scaled_dot_product_attention", attention):
        yield


@contextlib.contextmanager
def plain_linear() -> Iterator[None]:
    """Within the block F.linear adds its bias in place, as it does unless tensors are of a subclass.

    Only for inputs of several dimensions that are not contiguous: others have one operator for both.
    Source: ``aten/src/ATen/native/Linear.cpp``.
    """
    original, clear = F.linear, torch.clear_autocast_cache
    cache: dict[int, torch.Tensor] = {}

    def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if bias is None or input.dim() < 3 or input.is_contiguous() or input.device.type != "cuda":
            return original(input, weight, bias)
        if torch.is_autocast_enabled("cuda"):
            # arguments are evaluated from the last to the first
            bias, weight, input = (_cast(tensor, cache) for tensor in (bias, weight, input))
        with torch.autocast("cuda", enabled=False):
            return torch.matmul(input, weight.t()).add_(bias)

    def clear_both() -> None:
        clear()
        cache.clear()

    with patched(F, "linear", linear), patched(torch, "clear_autocast_cache", clear_both):
        yield


def _cast(tensor: torch.Tensor, cache: dict[int, torch.Tensor]) -> torch.Tensor:
    """A tensor in autocast's dtype; parameters are kept until autocast ends, with gradients even where there are none.

    Source: ``aten/src/ATen/autocast_mode.cpp``, ``cached_cast``.
    """
    low = torch.get_autocast_dtype("cuda")
    is_kept = tensor.requires_grad and tensor.is_leaf and not tensor._is_view() and tensor.dtype is torch.float32
    if not is_kept or not torch.is_autocast_cache_enabled():
        return tensor.to(low)
    if id(tensor) not in cache:
        with torch.enable_grad():
            cache[id(tensor)] = tensor.to(low)
    return cache[id(tensor)]


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


def _additive_mask(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor, kernel: str) -> torch.Tensor:
    """The mask as an additive one, padded for the memory-efficient kernel."""
    if mask.dtype is torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask.logical_not(), float("-inf"))
    padding = -mask.shape[-1] % 16 if kernel == "efficient" else 0
    if padding:  # the kernel reads blocks of 16
        mask = F.pad(mask, (0, padding))[..., : mask.shape[-1]]
    return mask.expand(*query.shape[:-1], key.shape[-2])
