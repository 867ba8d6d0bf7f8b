"""Memory of kernels that fake ones do not allocate."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tbmem.estimator.fake_tensors.workspaces import Result, blocks_of, workspace_bytes
from tbmem.model.gpus import Compute
from tbmem.units import KIB, MIB

ATEN = torch.ops.aten
AMPERE = Compute((8, 0), 108)


def scratch_bytes(operator: Any, args: tuple[Any, ...]) -> int:
    """The most that an operator has beside its results."""
    most = now = 0
    for block in blocks_of(operator, args, AMPERE):
        now += 0 if isinstance(block, Result) else block
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("capability", "setting"),
    [((7, 5), ":4096:2:16:8"), ((8, 0), ":4096:2:16:8"), ((8, 9), ":4096:2:16:8"), ((9, 0), ":4096:8")],
)
def test_cublas_takes_what_its_default_setting_says(capability: tuple[int, int], setting: str) -> None:
    # given CUBLAS_WORKSPACE_CONFIG: pairs of KiB and how many of them
    numbers = [int(number) for number in setting.split(":")[1:]]
    expected = sum(size * KIB * count for size, count in zip(numbers[::2], numbers[1::2], strict=True))

    assert workspace_bytes(capability) == expected


@pytest.mark.parametrize(
    ("count", "size"),
    [
        (3072, 0),
        # sorted, then added up: 13,107 parts of ten and one for each of 50,000 rows, of 256 values in float32
        (131072, 63_107 * 256 * 4 + (3 * 131072 + 2 * 50_000 + 63_107) * 8),
    ],
)
def test_many_indices_are_sorted_and_their_gradients_added(count: int, size: int) -> None:
    indices = torch.empty(count, dtype=torch.int64, device="meta")
    gradient = torch.empty(count, 256, device="meta")

    assert scratch_bytes(ATEN.embedding_dense_backward.default, (gradient, indices, 50_000)) == size


def test_losses_of_logits_have_intermediates() -> None:
    # given
    rows = torch.empty(131072, 256, device="meta")
    # then
    assert scratch_bytes(ATEN.logsumexp.default, (rows, [1])) == 128 * MIB
    assert scratch_bytes(ATEN.binary_cross_entropy_with_logits.default, (rows, rows)) == 256 * MIB
    assert scratch_bytes(ATEN.binary_cross_entropy_with_logits.default, (rows, rows, None, None, 0)) == 128 * MIB


def test_flash_attention_accumulates_in_padded_rows() -> None:
    # given 2 samples of 3 heads, 130 tokens of 40 values: 256 rows of 64, and one sum for each row, in float32
    query = torch.empty(2, 3, 130, 40, dtype=torch.bfloat16, device="meta")

    size = scratch_bytes(ATEN._scaled_dot_product_flash_attention_backward.default, (None, query))

    assert size == 2 * 3 * 256 * (64 + 1) * 4


def test_softmax_multiplies_gradient_and_output() -> None:
    gradient, output = (torch.empty(4, 8, dtype=dtype, device="meta") for dtype in (torch.bfloat16, torch.float32))

    assert scratch_bytes(ATEN._softmax_backward_data.default, (gradient, output, -1, torch.float32)) == 128
    # a bool for each of 32 scores and of 4 rows, and a zero
    assert scratch_bytes(ATEN._safe_softmax.default, (output, -1)) == 32 + 4 + 4


def test_other_operators_take_nothing() -> None:
    assert scratch_bytes(ATEN.mm.default, (torch.empty(2, 2), torch.empty(2, 2))) == 0


@pytest.mark.parametrize(
    ("dtype", "grouped", "size"),
    [
        # a float32 product of the output's size and two sums of its rows, more than what the workspace takes
        (torch.float32, False, 2 * 8 * 128 * 64 * 4 + 2 * (2 * 8 * 128 * 4)),
        # one sum of its rows, and two tiles of 64 by 64 for each head
        (torch.bfloat16, False, 2 * 8 * 128 * 4 + 2 * 8 * 2 * (64 * 64 + 4) * 4),
        # gradients of keys and values for eight heads instead of two
        (torch.bfloat16, True, 2 * 8 * 128 * 4 + 2 * 8 * 2 * (64 * 64 + 4) * 4 + 2 * (2 * 8 * 128 * 64 * 2)),
    ],
)
def test_efficient_attention_accumulates_in_tiles(dtype: torch.dtype, grouped: bool, size: int) -> None:
    query = torch.empty(2, 8, 128, 64, dtype=dtype, device="meta")
    key = torch.empty(2, 2 if grouped else 8, 128, 64, dtype=dtype, device="meta")

    gradient = torch.empty(2, 128, 8, 64, dtype=dtype, device="meta").transpose(1, 2)
    backward = ATEN._scaled_dot_product_efficient_attention_backward.default

    assert scratch_bytes(backward, (gradient, query, key)) == size
    # a gradient that lies otherwise is copied first
    copied = scratch_bytes(backward, (gradient.contiguous(), query, key))
    assert copied == size + gradient.numel() * gradient.element_size()


def blocks(operator: Any, *args: Any) -> list[Any]:
    """What an operator allocates: sizes, and the numbers of its results in brackets."""
    return [[block.number] if isinstance(block, Result) else block for block in blocks_of(operator, args, AMPERE)]


def test_tensors_that_lie_otherwise_are_copied_before_the_results() -> None:
    # given 2 samples of 8 channels and 16 places, with channels last in memory
    plain = torch.empty(2, 8, 4, 4, device="meta")
    turned = torch.empty(2, 4, 4, 8, device="meta").permute(0, 3, 1, 2)
    weight = torch.empty(8, 8, 1, 1, device="meta")
    size = 2 * 8 * 16 * 4
    # then
    assert blocks(ATEN.native_layer_norm.default, turned, [4]) == [size, [-1]]
    assert blocks(ATEN.native_layer_norm_backward.default, plain, turned) == [size, [-1]]
    backward = (None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False])
    assert blocks(ATEN.convolution_backward.default, turned, plain, weight, *backward) == [size, [0], [1], -size, [-1]]
    assert blocks(ATEN.convolution_backward.default, plain, plain, weight, *backward) == [[0], [1], [-1]]


def test_group_norm_has_factors_of_each_channel_and_group() -> None:
    # given 2 samples of 6 channels in 3 groups
    half = torch.empty(2, 6, 4, 4, dtype=torch.float16, device="meta")
    weight = half.new_empty(6)
    # then they are float32
    channels, groups = 2 * 6 * 4, 2 * 3 * 4
    assert blocks(ATEN.native_group_norm.default, half, weight, weight, 2, 6, 16, 3, 1e-5) == [[-1], channels, channels]
    backward = (half, half, None, None, weight, 2, 6, 16, 3, [True, True, True])
    freed = [-groups, -groups]
    assert blocks(ATEN.native_group_norm_backward.default, *backward) == [
        *([-1], channels, channels, groups, groups, channels),
        *freed,
    ]


def test_a_reduced_loss_has_the_storage_of_all_losses() -> None:
    rows = torch.empty(128, 4, device="meta")

    result, beside = blocks_of(ATEN.mse_loss.default, (rows, rows), AMPERE)

    assert result == Result(0, 2048)
    assert beside == 2048


def test_random_numbers_of_attention_are_on_the_host_with_dropout() -> None:
    query = torch.empty(2, 8, 128, 64, device="meta")
    attention = ATEN._scaled_dot_product_efficient_attention.default

    assert blocks(attention, query, query, query, None, True, 0.1, False) == [[0], [1]]
    assert blocks(attention, query, query, query, None, True, 0.0, False) == [[2], [3], [-1]]


def test_small_integers_are_summed_as_long_ones() -> None:
    assert blocks(ATEN.sum.default, torch.empty(100, dtype=torch.bool, device="meta")) == [[-1], 800]
