"""Scratch of CUDA's reductions: sums, means, norms, variances, extremes.

Where few results are made of many values, several blocks of threads work on one result and leave their parts in global
memory. Source: ``aten/src/ATen/native/cuda/Reduce.cuh`` (``setReduceConfig``, ``global_memory_size``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tbmem.model.gpus import Compute

_ATEN = torch.ops.aten
_WARP, _MOST_THREADS = 32, 512
_FEWEST_VALUES, _MOST_VALUES = 16, 256
"""Of one thread, if blocks share a result."""
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Of a multiprocessor, if not 2,048."""
_INT32 = 2**31
_OWN, _FLOAT = -1, -2
"""Partial results in the input's dtype, and in float32 at least."""
_WELFORD, _PAIR = 16, 16
"""Bytes of a partial variance, and of a value with its index."""


@dataclass(frozen=True, slots=True)
class _Reduction:
    """What is known of one: results, values of each, and how they lie in memory."""

    results: int
    values: int
    inner: int
    """Values side by side: the stride of the fastest dimension that is reduced or kept is 1."""
    by_values: bool
    """Whether values of one result are next to each other, else results."""
    kept: tuple[int, ...]
    """Sizes of the kept dimensions, the fastest first."""
    flat: bool
    """Whether all values are one contiguous row."""


def reduction_scratch(operator: Any, args: tuple[Any, ...], gpu: Compute) -> tuple[int, ...]:
    """Bytes that an operator allocates for partial results and for counting blocks; empty if it is no reduction."""
    if operator not in _KINDS or not isinstance(args[0], torch.Tensor) or not args[0].numel():
        return ()
    partial, at = _KINDS[operator]
    tensor = args[0]
    dims = args[at] if at and len(args) > at else None
    size = {_OWN: tensor.element_size(), _FLOAT: max(tensor.element_size(), 4)}.get(partial, partial)
    shape = _reduction(tensor, _dimensions(tensor, dims))
    return _bytes(shape, size, min(4, 16 // tensor.element_size()), gpu)


def _dimensions(tensor: torch.Tensor, given: Any) -> set[int]:
    listed = [given] if isinstance(given, int) else given
    return {dim % tensor.dim() for dim in listed} if listed and tensor.dim() else set(range(tensor.dim()))


def _reduction(tensor: torch.Tensor, reduced: set[int]) -> _Reduction:
    sides: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for dim, (length, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if length > 1:
            sides[dim in reduced].append((stride, length))
    values, results = (math.prod(length for _, length in sides[side]) for side in (True, False))
    fastest = {side: min(sides[side], default=(_INT32, 1))[0] for side in sides}
    by_values = not sides[False] or fastest[True] < fastest[False]
    return _Reduction(
        results=results,
        values=values,
        inner=min(fastest.values()),
        by_values=by_values,
        kept=tuple(length for _, length in sorted(sides[False])),
        flat=not sides[False] and tensor.is_contiguous(),
    )


def _bytes(shape: _Reduction, partial: int, vector: int, gpu: Compute) -> tuple[int, ...]:
    if not shape.by_values and shape.values == 1:
        return ()
    across, down = (shape.values, shape.results) if shape.by_values else (shape.results, shape.values)
    together = 1
    if shape.inner == 1 and shape.by_values and across > 128 and shape.flat:
        across //= vector
    elif shape.inner == 1 and not shape.by_values:
        together = _together(shape.kept)
        across //= together
    width, height = _block(across, down, _MOST_THREADS // together)
    steps = width if shape.by_values else 1
    outputs = 1 if shape.by_values else width
    if -(-shape.values // steps) < min(height * _FEWEST_VALUES, _MOST_VALUES):
        return ()
    steps *= height
    each = -(-shape.values // steps)
    grid = -(-(shape.results // together) // outputs)
    threads = _THREADS.get(gpu.capability, 2048) // (width * height)
    target = gpu.multiprocessors * threads
    if height == 1 and not shape.by_values or each < _MOST_VALUES or grid > target:
        return ()
    blocks = max(min(-(-target // grid), -(-each // _FEWEST_VALUES)), -(-each // _MOST_VALUES))
    if blocks <= 1:
        return ()
    return partial * shape.results * blocks * (1 if shape.by_values else width * together), 4 * grid


def _together(kept: Sequence[int]) -> int:
    """How many results a thread makes at once."""
    for count in (4, 2):
        if kept and kept[0] % count == 0:
            return count
    return 1


def _block(across: int, down: int, most: int) -> tuple[int, int]:
    """Threads of a block along both dimensions."""
    wide, high = (most if size >= most else 1 << (max(size, 1).bit_length() - 1) for size in (across, down))
    width = min(wide, _WARP)
    height = min(high, most // width)
    return min(wide, most // height), height


_KINDS: dict[Any, tuple[int, int]] = {
    _ATEN.sum.default: (_FLOAT, 0),
    _ATEN.sum.dim_IntList: (_FLOAT, 1),
    _ATEN.nansum.default: (_FLOAT, 1),
    _ATEN.mean.default: (_FLOAT, 0),
    _ATEN.mean.dim: (_FLOAT, 1),
    _ATEN.prod.default: (_FLOAT, 0),
    _ATEN.prod.dim_int: (_FLOAT, 1),
    _ATEN.linalg_vector_norm.default: (_FLOAT, 2),
    _ATEN.norm.Scalar: (_FLOAT, 0),
    _ATEN.norm.ScalarOpt_dim: (_FLOAT, 2),
    _ATEN.amax.default: (_OWN, 1),
    _ATEN.amin.default: (_OWN, 1),
    _ATEN.max.default: (_OWN, 0),
    _ATEN.min.default: (_OWN, 0),
    _ATEN.var.correction: (_WELFORD, 1),
    _ATEN.std.correction: (_WELFORD, 1),
    _ATEN.var_mean.correction: (_WELFORD, 1),
    _ATEN.argmax.default: (_PAIR, 1),
    _ATEN.argmin.default: (_PAIR, 1),
}
"""Bytes of a partial result; and the argument with the dimensions, 0 for all of them."""
