"""What reductions take for partial results; the sizes were seen with torch 2.14 on an H100 that is not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tbmem.estimator.fake_tensors.reductions import reduction_scratch

ATEN = torch.ops.aten
HOPPER = (9, 0)


@pytest.mark.parametrize(
    ("shape", "dims", "size"),
    [
        # the bias of a linear layer: its gradient is the sum over all tokens
        ((1040, 768), [0], 6_684_672),
        ((1040, 576), [0], 5_013_504),
        ((65536, 4096), [0], 138_412_032),
        ((16384, 769), [0], 2_165_504),
        ((512, 256), [0], 0),
        # sums of rows: one block of threads each
        ((32, 1024, 1024), [2], 0),
        ((10_000_000,), None, 2112),
        ((8, 64, 128, 128), [0, 2, 3], 2304),
        ((0, 4), [0], 0),
    ],
)
def test_sums_of_many_values_keep_partial_results(shape: tuple[int, ...], dims: list[int] | None, size: int) -> None:
    # given
    tensor = torch.empty(shape, device="meta")
    # then
    assert reduction_scratch(ATEN.sum.dim_IntList, (tensor, dims), HOPPER) == size


@pytest.mark.parametrize(
    ("operator", "arguments", "dtype", "size"),
    [
        (ATEN.amax.default, ([0],), torch.bfloat16, 3_342_336),
        (ATEN.mean.dim, ([0],), torch.bfloat16, 6_684_672),
        (ATEN.linalg_vector_norm.default, (2.0, [0]), torch.float32, 6_684_672),
        (ATEN.var.correction, ([0],), torch.float32, 26_738_688),
        (ATEN.add.Tensor, (1,), torch.float32, 0),
    ],
)
def test_partial_results_have_a_dtype_of_their_own(
    operator: Any, arguments: tuple[Any, ...], dtype: torch.dtype, size: int
) -> None:
    # given
    tensor = torch.empty(1040, 768, dtype=dtype, device="meta")
    # then
    assert reduction_scratch(operator, (tensor, *arguments), HOPPER) == size
