"""Operators go in, bytes that their CUDA kernels take besides inputs and outputs come out; each with its source.

Fake kernels only know shapes of results. What is not in this table is not counted. For the CPU's see ``onednn.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tbmem.units import KIB, MIB, round_up

Scratch = Callable[[Any, tuple[Any, ...], Any], int]
"""An operator, its arguments and its result; bytes that live only while it runs."""
_ATEN = torch.ops.aten


def workspace_bytes(capability: tuple[int, int]) -> int:
    """Of cuBLAS, for each thread that multiplies matrices.

    Source: ``aten/src/ATen/cuda/CublasHandlePool.cpp`` (the default of CUBLAS_WORKSPACE_CONFIG: ``:4096:2:16:8``, on
    Hopper and Blackwell ``:4096:8``); both sizes are seen in snapshots of real GPUs.
    """
    return 32 * MIB if capability[0] in (9, 10) else 2 * 4096 * KIB + 8 * 16 * KIB


def scratch_bytes(operator: Any, args: tuple[Any, ...], result: Any) -> int:
    """Bytes that live only while the operator runs."""
    rule = _RULES.get(operator)
    return rule(args, result) if rule is not None else 0


def _flash_backward(args: tuple[Any, ...], result: Any) -> int:
    """Gradients of the query are summed up in float32, rows padded to 128, heads to 32.

    Source: ``aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp``, ``mha_bwd`` (dq_accum, softmax_d).
    """
    del result
    batch, heads, length, width = args[1].shape
    rows = round_up(length, 128)
    return int(batch * heads * rows * (round_up(width, 32) + 1) * 4)


def _embedding_backward(args: tuple[Any, ...], result: Any) -> int:
    """More than 3,072 indices are sorted, with their order beside them: two copies of both.

    Source: ``aten/src/ATen/native/cuda/Embedding.cu``, ``embedding_dense_backward_cuda``.
    """
    del result
    indices = args[1].numel()
    return int(indices * args[1].element_size() * 4) if indices > 3072 else 0


_RULES: dict[Any, Callable[[tuple[Any, ...], Any], int]] = {
    _ATEN._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _ATEN.embedding_dense_backward.default: _embedding_backward,
}
