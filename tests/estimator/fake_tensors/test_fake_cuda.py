"""What torch's own fake mode answers, and where ours must differ from it."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tbmem.estimator.fake_tensors.fake_cuda import FakeMode, current_stream, fake_cuda_device


def test_waiting_for_a_collective_takes_no_memory() -> None:
    # given what a collective is to fill; torch's own fake operator makes a copy of it
    with FakeMode():
        tensor = torch.empty(4)
        # when it is waited for, then it is the same, as with the real operator
        waited = torch.ops._c10d_functional.wait_tensor(tensor)
    assert waited.untyped_storage()._cdata == tensor.untyped_storage()._cdata


def test_gradients_go_through_it() -> None:
    # given a weight that is used three times
    with FakeMode():
        weight = torch.nn.Parameter(torch.empty(4, 4))
        for _ in range(3):
            weight.grad = None
            (torch.empty(2, 4) @ weight).sum().backward()  # type: ignore[no-untyped-call]

    # then its gradient is like it
    assert isinstance(weight.grad, FakeTensor)
    assert weight.grad.shape == weight.shape


def test_a_stream_is_the_current_one_within_its_block() -> None:
    # given
    with fake_cuda_device(1, (9, 0), 1 << 30):
        stream = torch.cuda.Stream()
        # when
        with torch.cuda.stream(stream):
            within, named = current_stream(), torch.cuda.current_stream()
        # then
        assert within == stream.stream_id != 0
        assert named is stream
        assert current_stream() == 0
