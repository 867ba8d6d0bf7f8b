"""Workspaces of CUDA kernels, which fake kernels do not allocate, each with its source; others are not counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from tbmem.estimator.fake_tensors.cuda_kernels import has_rms_norm
from tbmem.estimator.fake_tensors.reductions import reduction_scratch
from tbmem.model.gpus import Compute
from tbmem.units import KIB, MIB, round_up

_ATEN = torch.ops.aten


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Bytes of cuBLAS's workspace, per thread that runs a matrix product.

    Source: ``aten/src/ATen/cuda/CublasHandlePool.cpp`` (the default of CUBLAS_WORKSPACE_CONFIG: ``:4096:2:16:8``, on
    Hopper and Blackwell ``:4096:8``, since torch 2.14 also with capability 12.0); both sizes were observed in
    snapshots of real GPUs.
    """
    return 32 * MIB if capability[0] in (9, 10, 12) else 2 * 4096 * KIB + 8 * 16 * KIB


class Result(NamedTuple):
    """A result of an operator."""

    number: int = -1  # -1: all that are left
    size: int = 0  # bytes of its storage, if they are not those of the fake one


Blocks = Sequence[int | Result]
"""What an operator allocates, in its order: its results, and sizes in bytes of blocks that it frees before it ends.

A negative size frees the newest block of that size before the next is allocated.
"""
_LEFT = Result()
_COUNTS = (_ATEN.sum.default, _ATEN.sum.dim_IntList)
_SMALL_INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
"""Copied as int64 before they are summed."""
NOTHING: Blocks = (_LEFT,)


def blocks_of(operator: Any, args: tuple[Any, ...], gpu: Compute) -> Blocks:
    """What an operator allocates while it runs on a GPU."""
    if operator in _RULES:
        return _RULES[operator](args)
    if operator is _ATEN.convolution_backward.default:
        return _convolution_backward(args, gpu)
    if operator in _COUNTS and args[0].dtype in _SMALL_INTEGERS:
        return _LEFT, args[0].numel() * 8
    parts = reduction_scratch(operator, args, gpu)
    return (_LEFT, *parts) if parts else NOTHING


def _bytes_of(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _copy_of(tensor: torch.Tensor, layout: torch.memory_format = torch.contiguous_format) -> tuple[int, ...]:
    """The copy of a tensor that does not lie as a kernel reads it."""
    return () if tensor.is_contiguous(memory_format=layout) else (_bytes_of(tensor),)


def _flash_backward(args: tuple[Any, ...]) -> Blocks:
    """Gradients of the query are accumulated in float32, rows padded to 128, heads to 32.

    Source: ``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp``, ``mha_bwd`` (dq_accum, softmax_d).
    """
    batch, heads, length, width = args[1].shape
    rows = batch * heads * round_up(length, 128)
    return _LEFT, rows * 4, rows * round_up(width, 32) * 4


def _efficient_backward(args: tuple[Any, ...]) -> Blocks:
    """Gradients of the query are accumulated in float32, in tiles of 64 rows and columns.

    Half precision wider than 128 also accumulates those of key and value (in one part). Sums over the output's rows are
    the kernel's own in half precision, else those of a product of its size. Grouped heads have gradients of key and
    value for each head of the query first. Source: ``aten/src/ATen/native/transformers/cuda/attention_backward.cu`` and
    ``mem_eff_attention/kernel_backward.h`` (``workspace_size``).
    """
    gradient, query, key = args[:3]
    batch, heads, length, width = query.shape
    tiles = (round_up(length, 64) // 64) * (round_up(width, 64) // 64)
    accumulated = tiles * 64 * 64 + round_up(length, 64) // 64 * 4
    is_half = query.element_size() == 2
    if is_half and width > 128:
        accumulated += 2 * round_up(key.shape[2], 128) * round_up(width, 128)
    sums, workspace = batch * heads * length * 4, batch * heads * accumulated * 4
    grouped = [batch * heads * key.shape[2] * width * query.element_size()] * 2 if key.shape[1] != heads else []
    product = query.numel() * 4
    summed = (sums,) if is_half else (product, sums, sums, -sums, -product)
    return *_copy_of(gradient.transpose(1, 2)), _LEFT, *grouped, *summed, workspace, -sums


def _efficient_attention(args: tuple[Any, ...]) -> Blocks:
    """Seed and offset come first; those of a dropout are on the host.

    Source: ``aten/src/ATen/native/transformers/cuda/attention.cu``, ``_efficient_attention_forward``.
    """
    has_dropout = len(args) > 5 and args[5] > 0
    return (Result(0), Result(1)) if has_dropout else (Result(2), Result(3), _LEFT)


def _dropout(_: tuple[Any, ...]) -> Blocks:
    """The mask first; source: ``aten/src/ATen/native/cuda/Dropout.cu``."""
    return Result(1), _LEFT


def _layer_norm(args: tuple[Any, ...]) -> Blocks:
    """Source: ``aten/src/ATen/native/cuda/layer_norm_kernel.cu``."""
    return *_copy_of(args[0]), _LEFT


def _layer_norm_backward(args: tuple[Any, ...]) -> Blocks:
    """Source: ``aten/src/ATen/native/cuda/layer_norm_kernel.cu``."""
    return *_copy_of(args[1]), _LEFT, *_copy_of(args[0])


def _group_norm(args: tuple[Any, ...]) -> Blocks:
    """A factor and a summand of each channel; source: ``aten/src/ATen/native/cuda/group_norm_kernel.cu``."""
    samples, channels, places = args[3:6]
    return (_LEFT, *[samples * channels * _float_size(args[0])] * 2) if places > 1 else NOTHING


def _group_norm_backward(args: tuple[Any, ...]) -> Blocks:
    """Sums and factors of each channel and of each group; source as of :func:`_group_norm`."""
    samples, channels, places, groups = args[5:9]
    of_channels, of_groups = (samples * count * _float_size(args[1]) for count in (channels, groups))
    copy = _copy_of(args[0])
    if places == 1 or not args[9][0]:
        return *copy, _LEFT, of_channels, of_channels
    factors = (of_groups, of_groups, of_channels * (args[4] is not None), -of_groups, -of_groups)
    return *copy, _LEFT, of_channels, of_channels, *factors


def _float_size(tensor: torch.Tensor) -> int:
    """Bytes of a value that sums of a tensor's values are kept in."""
    return max(tensor.element_size(), 4)


def _convolution(args: tuple[Any, ...]) -> Blocks:
    """Inputs and weights as the kernel reads them; source: ``aten/src/ATen/native/Convolution.cpp``."""
    layout = _layout(*args[:2])
    return *_copy_of(args[0], layout), *_copy_of(args[1], layout), _LEFT


def _layout(inputs: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    """The layout that a convolution runs in; source: ``ConvUtils.h``, ``cudnn_conv_suggest_memory_format``."""
    layouts = {torch._prims_common.suggest_memory_format(tensor) for tensor in (inputs, weight)}
    return next(iter(layouts - {torch.contiguous_format}), torch.contiguous_format)


def _convolution_backward(args: tuple[Any, ...], gpu: Compute) -> Blocks:
    """The gradient as the kernel reads it, then partial sums of the bias's gradient.

    Source: ``aten/src/ATen/native/Convolution.cpp``, ``convolution_backward`` and ``ConvParams::is_depthwise``.
    """
    gradient, inputs, weight = args[:3]
    copy = _copy_of(gradient, _layout(inputs, weight))
    dims = [dim for dim in range(gradient.dim()) if dim != 1]
    sums = reduction_scratch(_ATEN.sum.dim_IntList, (gradient, dims), gpu) if args[-1][2] else ()
    is_depthwise = args[-2] > 1 and args[-2] == inputs.shape[1] and not args[7] and gradient.dtype is torch.float32
    first = (Result(1), Result(0)) if is_depthwise else (Result(0), Result(1))
    return *copy, *first, *(-size for size in copy), _LEFT, *sums


def _upsample_backward(args: tuple[Any, ...]) -> Blocks:
    """Source: ``aten/src/ATen/native/cuda/UpSampleNearest2d.cu``."""
    return _LEFT, *_copy_of(args[0])


def _reduced_loss(args: tuple[Any, ...]) -> Blocks:
    """The result has the storage of all losses, which are made beside it; source: ``BinaryOps.cpp``, ``Loss.cpp``."""
    return (Result(0, size := _bytes_of(args[0])), size) if len(args) < 3 or args[2] != 0 else NOTHING


def _softmax_backward(args: tuple[Any, ...]) -> Blocks:
    """The product of gradient and output; source: ``aten/src/ATen/native/cuda/SoftMax.cu``."""
    return _LEFT, args[1].numel() * max(args[0].element_size(), args[1].element_size())


def _safe_softmax(args: tuple[Any, ...]) -> Blocks:
    """A bool for each score that is minus infinity, one for each row, and a zero.

    Source: ``aten/src/ATen/native/transformers/attention.cpp``.
    """
    count = args[0].numel()
    return _LEFT, count, count // max(args[0].shape[args[1]], 1), args[0].element_size()


def _embedding_backward(args: tuple[Any, ...]) -> Blocks:
    """More than 3,072 indices are sorted together with their order, then gradients of up to ten of them are added up.

    Source: ``aten/src/ATen/native/cuda/Embedding.cu``, ``embedding_dense_backward_cuda``, and
    ``EmbeddingBackwardKernel.cu`` (``grad_weight_per_segment``, in float32).
    """
    gradient, indices, rows = args[:3]
    count, size = indices.numel(), indices.element_size()
    if count <= 3072:
        return NOTHING
    segments = min(count, rows)
    parts = count // 10 + segments
    sums = parts * round_up(gradient.shape[-1], 32) * 4
    return _LEFT, int(max(4 * count * size, (3 * count + 2 * segments + parts) * size + sums))


def _log_sum_exp(args: tuple[Any, ...]) -> Blocks:
    """Exponentials of all values; source: ``aten/src/ATen/native/ReduceOps.cpp``, ``logsumexp_out_impl``."""
    return _LEFT, _bytes_of(args[0])


def _cross_entropy_of_logits(args: tuple[Any, ...]) -> Blocks:
    """Two intermediates, one of which may be the result; source: ``aten/src/ATen/native/Loss.cpp``."""
    reduced = len(args) <= 4 or args[4] != 0
    return _LEFT, *[_bytes_of(args[0])] * (1 + reduced)


_RULES = {
    _ATEN._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _ATEN._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _ATEN._scaled_dot_product_efficient_attention.default: _efficient_attention,
    _ATEN.native_dropout.default: _dropout,
    _ATEN.native_layer_norm.default: _layer_norm,
    _ATEN.native_layer_norm_backward.default: _layer_norm_backward,
    _ATEN.convolution.default: _convolution,
    _ATEN.native_group_norm.default: _group_norm,
    _ATEN.native_group_norm_backward.default: _group_norm_backward,
    _ATEN.upsample_nearest2d_backward.default: _upsample_backward,
    _ATEN.mse_loss.default: _reduced_loss,
    _ATEN._softmax_backward_data.default: _softmax_backward,
    _ATEN._safe_softmax.default: _safe_softmax,
    _ATEN.logsumexp.default: _log_sum_exp,
    _ATEN.binary_cross_entropy_with_logits.default: _cross_entropy_of_logits,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
}
if has_rms_norm():
    # its kernels are those of the layer norm
    _RULES |= {
        _ATEN._fused_rms_norm.default: _layer_norm,
        _ATEN._fused_rms_norm_backward.default: _layer_norm_backward,
    }
