"""Workspaces of CUDA kernels, which fake kernels do not allocate, each with its source; others are not counted."""

from __future__ import annotations

from typing import Any

import torch

from tbmem.estimator.fake_tensors.reductions import reduction_scratch
from tbmem.units import KIB, MIB, round_up

_ATEN = torch.ops.aten
_GRU_WORKSPACE, _GRU_GATES = 5, 3
"""Of a GRU cell, in multiples of the hidden size: gates and both states; the gates alone."""
_libraries: list[torch.library.Library] = []
"""Kernels are registered as long as their library exists."""


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Bytes of cuBLAS's workspace, per thread that runs a matrix product.

    Source: ``aten/src/ATen/cuda/CublasHandlePool.cpp`` (the default of CUBLAS_WORKSPACE_CONFIG: ``:4096:2:16:8``, on
    Hopper and Blackwell ``:4096:8``, since torch 2.14 also with capability 12.0); both sizes were observed in
    snapshots of real GPUs.
    """
    return 32 * MIB if capability[0] in (9, 10, 12) else 2 * 4096 * KIB + 8 * 16 * KIB


def scratch_bytes(operator: Any, args: tuple[Any, ...], capability: tuple[int, int]) -> int:
    """Bytes that an operator allocates and frees while it runs on a GPU of this compute capability."""
    return _RULES[operator](args) if operator in _RULES else reduction_scratch(operator, args, capability)


def _flash_backward(args: tuple[Any, ...]) -> int:
    """Gradients of the query are accumulated in float32, rows padded to 128, heads to 32.

    Source: ``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp``, ``mha_bwd`` (dq_accum, softmax_d).
    """
    batch, heads, length, width = args[1].shape
    rows = round_up(length, 128)
    return int(batch * heads * rows * (round_up(width, 32) + 1) * 4)


def _efficient_backward(args: tuple[Any, ...]) -> int:
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
    grouped = 2 * batch * heads * key.shape[2] * width * query.element_size() if key.shape[1] != heads else 0
    product = 0 if is_half else query.numel() * 4 + sums
    # the gradient is copied unless it lies as the output does
    copy = 0 if gradient.transpose(1, 2).is_contiguous() else gradient.numel() * gradient.element_size()
    return int(grouped + copy + sums + max(product, workspace))


def _softmax_backward(args: tuple[Any, ...]) -> int:
    """The product of gradient and output; source: ``aten/src/ATen/native/cuda/SoftMax.cu``."""
    return int(args[1].numel() * max(args[0].element_size(), args[1].element_size()))


def _safe_softmax(args: tuple[Any, ...]) -> int:
    """A bool for each score that is minus infinity; source: ``aten/src/ATen/native/transformers/attention.cpp``."""
    return int(args[0].numel())


def _embedding_backward(args: tuple[Any, ...]) -> int:
    """More than 3,072 indices are sorted together with their order, then gradients of up to ten of them are added up.

    Source: ``aten/src/ATen/native/cuda/Embedding.cu``, ``embedding_dense_backward_cuda``, and
    ``EmbeddingBackwardKernel.cu`` (``grad_weight_per_segment``, in float32).
    """
    gradient, indices, rows = args[:3]
    count, size = indices.numel(), indices.element_size()
    if count <= 3072:
        return 0
    segments = min(count, rows)
    parts = count // 10 + segments
    sums = parts * round_up(gradient.shape[-1], 32) * 4
    return int(max(4 * count * size, (3 * count + 2 * segments + parts) * size + sums))


def _log_sum_exp(args: tuple[Any, ...]) -> int:
    """Exponentials of all values; source: ``aten/src/ATen/native/ReduceOps.cpp``, ``logsumexp_out_impl``."""
    return int(args[0].numel() * args[0].element_size())


def _cross_entropy_of_logits(args: tuple[Any, ...]) -> int:
    """Two intermediates, one of which may be the result; source: ``aten/src/ATen/native/Loss.cpp``."""
    reduced = len(args) <= 4 or args[4] != 0
    return int((1 + reduced) * args[0].numel() * args[0].element_size())


_RULES = {
    _ATEN._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _ATEN._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _ATEN._softmax_backward_data.default: _softmax_backward,
    _ATEN._safe_softmax.default: _safe_softmax,
    _ATEN.logsumexp.default: _log_sum_exp,
    _ATEN.binary_cross_entropy_with_logits.default: _cross_entropy_of_logits,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
}


def register_gru() -> None:
    """Register fake kernels of the fused GRU cell, which torch does not have.

    Source: ``aten/src/ATen/native/cuda/RNN.cu`` (``GRU_WORKSPACE_MULTIPLIER``, ``_thnn_fused_gru_cell_cuda``).
    """
    if _libraries:
        return
    library = torch.library.Library("aten", "IMPL", "Meta")  # type: ignore[no-untyped-call]
    for name, kernel in (("_thnn_fused_gru_cell", _gru), ("_thnn_fused_gru_cell_backward", _gru_backward)):
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "Meta"):
            library.impl(name, kernel)  # type: ignore[no-untyped-call]
    _libraries.append(library)


def _gru(_inputs: Any, _hidden: Any, state: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    samples, width = state.shape
    return state.new_empty(samples, width), state.new_empty(samples, width * _GRU_WORKSPACE)


def _gru_backward(
    gradient: torch.Tensor, workspace: torch.Tensor, has_bias: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    samples, width = workspace.shape[0], workspace.shape[1] // _GRU_WORKSPACE
    of_input, of_hidden = (workspace.new_empty(samples, _GRU_GATES * width) for _ in range(2))
    of_biases = [workspace.new_empty(_GRU_GATES * width) if has_bias else None for _ in range(2)]
    return of_input, of_hidden, torch.empty_like(gradient), of_biases[0], of_biases[1]
