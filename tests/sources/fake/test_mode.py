"""What torch's own fake mode answers is what counts: ours must give the same, also when it remembers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from tbmem.sources.fake.mode import FakeMode

_ATEN = torch.ops.aten
Call = Callable[[torch.Tensor, torch.Tensor], Any]

CALLS: dict[str, Call] = {
    "new": lambda a, b: a @ b,
    "new, broadcast": lambda a, b: a.t() + b[:, :1],
    "of a number": lambda a, b: a * 2,
    "of a float": lambda a, b: a.long() * 2.0,
    "another type": lambda a, b: a.to(torch.bfloat16),
    "another layout": lambda a, b: torch.empty_like(a.t()),
    "factory": lambda a, b: a.new_zeros(3, 5),
    "view": lambda a, b: a.view(-1),
    "transposed": lambda a, b: a.t(),
    "slice": lambda a, b: a[1:, ::2],
    "view of a view": lambda a, b: a[1:].t()[:, 1:],
    "expanded": lambda a, b: a[:1].expand(4, 8),
    "unsafe view": lambda a, b: _ATEN._unsafe_view(a, [32]),
    "detached": lambda a, b: a.detach(),
    "strided": lambda a, b: torch.as_strided(a, (2, 2), (1, 3), 1),
    "in place": lambda a, b: a.add_(1),
    "in place view": lambda a, b: a.clone().t_(),
    "into another": lambda a, b: torch.add(a, 1, out=torch.empty_like(a)),
    "joined": lambda a, b: torch.cat([a, b.t()]),
    "several": lambda a, b: torch.split(a, 1),
    "several new": lambda a, b: torch.native_layer_norm(a, [8], None, None, 1e-5),
    "sum": lambda a, b: a.sum(),
    "conjugate": lambda a, b: a.to(torch.complex64).conj(),
    "random": lambda a, b: torch.rand_like(a),
    "a constant": lambda a, b: torch.tensor(3.0) * 2,
}


def _told(result: Any, arguments: tuple[torch.Tensor, ...]) -> Any:
    """Everything about a result that decides about memory, and whether it is an argument or a view of one."""
    if isinstance(result, (list, tuple)):
        return [_told(one, arguments) for one in result]
    storage = result.untyped_storage()
    return {
        "type": type(result),
        "shape": tuple(result.shape),
        "stride": result.stride(),
        "offset": result.storage_offset(),
        "dtype": result.dtype,
        "device": result.device,
        "bytes": storage.nbytes(),
        "keys": str(torch._C._dispatch_key_set(result)),
        "is": [result is one for one in arguments],
        "shares": [storage._cdata == one.untyped_storage()._cdata for one in arguments],
    }


def _answers(mode: FakeTensorMode, call: Call, times: int) -> list[Any]:
    told = []
    with mode:
        for _ in range(times):
            arguments = torch.empty(4, 8), torch.empty(8, 4)
            told.append(_told(call(*arguments), arguments))
    return told


@pytest.mark.parametrize("name", CALLS)
def test_answers_are_torchs_own(name: str) -> None:
    # given what torch says
    expected = _answers(FakeTensorMode(), CALLS[name], 1)

    # when the same is asked three times, of which two are remembered
    answers = _answers(FakeMode(), CALLS[name], 3)

    # then it is the same each time
    assert answers == expected * 3


def test_what_looks_alike_is_told_apart() -> None:
    # given numbers that are equal
    with FakeMode():
        whole = torch.empty(3, dtype=torch.int64)
        # when the same operator meets them one after the other
        types = [(whole * number).dtype for number in (2, 2.0, True, 2)]

    # then the result follows the number's type
    assert types == [torch.int64, torch.float32, torch.int64, torch.int64]


def test_the_default_type_counts() -> None:
    # given a factory that is called once
    with FakeMode():
        single = torch.empty(3) * 1
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            # when the default has changed
            double = torch.empty(3) * 1
        finally:
            torch.set_default_dtype(before)

    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)


def test_remembered_results_are_new_each_time() -> None:
    # given one operator called twice on the same tensor
    with FakeMode():
        tensor = torch.empty(4)
        first, second = tensor + 1, tensor + 1

    # then each has memory of its own
    assert first.untyped_storage()._cdata != second.untyped_storage()._cdata


def test_waiting_for_a_collective_takes_no_memory() -> None:
    # given what a collective is to fill; torch's own fake operator makes a copy of it
    with FakeMode():
        tensor = torch.empty(4)
        # when it is waited for, then it is the same, as with the real operator
        waited = torch.ops._c10d_functional.wait_tensor(tensor)
    assert waited.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_a_size_that_changed_is_seen() -> None:
    # given a tensor that was multiplied
    with FakeMode():
        tensor = torch.empty(4)
        assert (tensor * 2).shape == (4,)
        # when it is resized in place
        tensor.resize_(6)
        # then the result is larger, too
        assert (tensor * 2).shape == (6,)


def test_errors_are_raised_each_time() -> None:
    with FakeMode():
        for _ in range(2):
            with pytest.raises(RuntimeError, match="reduction dim"):
                torch.empty(2, 3) @ torch.empty(2, 3)


def test_gradients_go_through_it() -> None:
    # given a weight that is used twice
    with FakeMode():
        weight = torch.nn.Parameter(torch.empty(4, 4))
        for _ in range(3):
            weight.grad = None
            (torch.empty(2, 4) @ weight).sum().backward()  # type: ignore[no-untyped-call]

    # then its gradient is like it
    assert isinstance(weight.grad, FakeTensor)
    assert weight.grad.shape == weight.shape
