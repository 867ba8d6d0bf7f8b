"""Which optimizer a job has, and the state that it holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from tbmem.estimator.workload.optimizers import EightBitAdamW, HostOptimizer, make_optimizer
from tbmem.model.job import OPTIMIZERS, Job

CPU = Job(model="gpt2", device="cpu")


def _trained(width: int = 8) -> nn.Linear:
    """A layer with gradients."""
    torch.manual_seed(0)
    layer = nn.Linear(width, 4)
    layer(torch.randn(2, width)).square().sum().backward()
    return layer


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if name != "none"])
def test_every_optimizer_that_a_job_may_have_steps(name: str) -> None:
    # given
    layer = _trained()
    optimizer = make_optimizer(replace(CPU, optimizer=name), layer.parameters())
    assert optimizer is not None
    # when
    optimizer.step()
    # then only plain SGD has no state
    assert any(map(len, optimizer.state.values())) == (name != "sgd")


def test_no_training_has_no_optimizer() -> None:
    layer = _trained()

    assert make_optimizer(replace(CPU, optimizer="none"), layer.parameters()) is None
    assert make_optimizer(replace(CPU, inference=True), layer.parameters()) is None


@pytest.mark.parametrize(
    ("job", "foreach"),
    [
        (CPU, False),
        (replace(CPU, device="cuda"), True),
        (replace(CPU, device="cuda", offload=True), False),
        (replace(CPU, device="cuda", tensor=2, world_size=2), False),
        (replace(CPU, device="cuda", tensor=2, fsdp=2, world_size=4), True),
        (replace(CPU, implementation="foreach"), True),
        (replace(CPU, device="cuda", implementation="for-loop"), False),
    ],
    ids=["CPU", "GPU", "state on the host", "tensor", "tensor and shards", "foreach", "for-loop"],
)
def test_foreach_is_taken_where_torch_takes_it(job: Job, foreach: bool) -> None:
    optimizer = make_optimizer(job, _trained().parameters())

    assert optimizer is not None
    assert optimizer.defaults["foreach"] is foreach


def test_fused_is_left_out_where_torch_has_none() -> None:
    adam = make_optimizer(replace(CPU, optimizer="adam", implementation="fused"), _trained().parameters())
    rmsprop = make_optimizer(replace(CPU, optimizer="rmsprop", implementation="fused"), _trained().parameters())

    assert adam is not None
    assert rmsprop is not None
    assert adam.defaults["fused"] is True
    assert "fused" not in rmsprop.defaults


def test_eight_bits_hold_a_byte_for_each_value_and_a_scale_for_each_block() -> None:
    # given 4,097 values, which begin a seventeenth block of 256, and 4,095, too few to be quantized
    large, small, frozen = (nn.Parameter(torch.zeros(count)) for count in (4097, 4095, 8))
    large.grad, small.grad = torch.ones_like(large), torch.ones_like(small)
    optimizer = EightBitAdamW([large, small, frozen])
    # when
    optimizer.step()
    # then
    held = {parameter: sum(tensor.nbytes for tensor in state.values()) for parameter, state in optimizer.state.items()}
    assert held[large] == 2 * (4097 + 17 * 4)
    assert held[small] == 2 * 4095 * 4
    # a parameter without a gradient has none
    assert held.get(frozen, 0) == 0
    # and the second step allocates nothing
    first = dict(optimizer.state[large])
    optimizer.step()
    assert all(optimizer.state[large][name] is tensor for name, tensor in first.items())


def test_a_step_on_the_host_is_that_of_torch() -> None:
    # given the same layer twice
    layer, reference = _trained(), _trained()
    optimizer = HostOptimizer(CPU, layer.parameters())
    # when
    optimizer.step()
    torch.optim.AdamW(reference.parameters(), foreach=False).step()
    # then
    for parameter, expected in zip(layer.parameters(), reference.parameters(), strict=True):
        assert torch.equal(parameter, expected)
