"""What autograd adds into, beside what the CPU hands out."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tbmem.estimator.tracker.tracker import AllocationTracker


def sums_in_place(work: Any) -> list[bool]:
    """Of each gradient that is added to another: whether it is the other's memory."""
    with AllocationTracker("cpu") as tracker:
        work()
    log = tracker.log
    add = list(log.operators).index("aten::add.Tensor")
    return [number in log._accumulated for number, row in enumerate(log.rows) if row.operator == add]


def test_a_gradient_that_is_a_view_is_not_added_into() -> None:
    """Given a weight that is used three times, then the second gradient makes a third, which takes in the last."""
    layer = nn.Linear(8, 8, bias=False)
    values = [torch.zeros(2, 8) for _ in range(3)]

    assert sums_in_place(lambda: torch.stack([layer(one).sum() for one in values]).sum().backward()) == [False, True]


def test_a_forward_that_is_computed_again_adds_out_of_place() -> None:
    # given a layer whose forward adds two activations, and is computed again in the backward pass
    inputs = torch.zeros(2, 8, requires_grad=True)

    def layer(values: torch.Tensor) -> torch.Tensor:
        return (values.sin() + values.cos()).exp()

    # when
    sums = sums_in_place(lambda: checkpoint(layer, inputs, use_reentrant=False).sum().backward())
    # then neither the forward's sum nor the one that is computed again is merged, that of two gradients is
    assert sums == [False, False, True]
