"""What reductions take for partial results; the sizes were seen with torch 2.14 on an H100 that is not there."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tbmem.estimator.fake_tensors.reductions import reduction_scratch
from tbmem.model.gpus import Compute

ATEN = torch.ops.aten
HOPPER = Compute((9, 0), 132)


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
    assert sum(reduction_scratch(ATEN.sum.dim_IntList, (tensor, dims), HOPPER)[:1]) == size


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
    assert sum(reduction_scratch(operator, (tensor, *arguments), HOPPER)[:1]) == size


def test_a_gpu_with_fewer_multiprocessors_divides_a_sum_into_fewer_parts() -> None:
    # given two cards of one compute capability, and many values of few results
    tensor = torch.empty(65536, 128, device="meta")
    # when
    many, few = (reduction_scratch(ATEN.sum.dim_IntList, (tensor, [0]), Compute((8, 9), count)) for count in (142, 58))
    # then each has its partial results, and a number for each column of blocks
    assert many[0] > few[0] > 0
    assert many[1] == few[1] == 4
