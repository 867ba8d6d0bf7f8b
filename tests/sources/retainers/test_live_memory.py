"""What holds memory now: real tensors, arrays, models; names and lines as their user wrote them."""

from __future__ import annotations

import subprocess
import sys
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from tbmem.analysis.diagnosis.oom_holders import holdings_of
from tbmem.model.oom import OomHolder
from tbmem.sources.program.ownership import asking_line, innermost_frame, raising_line
from tbmem.sources.retainers.live_memory import live_memory
from tbmem.sources.retainers.retained_size import NODE_BYTES
from tbmem.units import KIB, MIB

kept_by_a_module: list[torch.Tensor] = []


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(256, 256)
        self.register_buffer("mask", torch.ones(256))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.inner(x)) * self.mask


def _look() -> dict[str, OomHolder]:
    found = live_memory(sys._getframe(1))
    return {one.name: one for one in holdings_of(found.live, "cpu", found.lines)}


def test_a_training_is_told_by_what_it_is_made_of() -> None:
    # given a model that has been trained for a step
    model = Net()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(4, 256)).sum().backward()
    optimizer.step()

    # when its memory is looked at
    found = _look()

    # then weights, gradients, buffers and the optimizer's state are apart, to the byte
    weights = 256 * 256 * 4 + 256 * 4
    assert found["parameters of Net"].bytes == found["gradients of Net"].bytes == weights
    assert found["buffers of Net"].bytes == 256 * 4
    assert found["state of Adam"].bytes == 2 * weights + 2 * 4
    assert found["parameters of Net"].largest == "inner.weight"
    assert found["state of Adam"].lines[0].endswith("optimizer = torch.optim.Adam(model.parameters())")


def test_a_long_list_is_one_holder_with_the_line_that_fills_it() -> None:
    # given more tensors than a traversal looks at one by one
    history = []
    for _ in range(500):
        history.append(torch.ones(KIB))  # noqa: PERF401  (the line that shall be found)

    holding = _look()["list 'history' in test_a_long_list_is_one_holder_with_the_line_that_fills_it()"]

    assert (holding.bytes, holding.count) == (500 * 4 * KIB, 500)
    assert "history.append(torch.ones(KIB))" in holding.lines[0]


@pytest.mark.parametrize("is_packed", [False, True])
def test_graphs_count_to_what_keeps_them(is_packed: bool) -> None:
    # given losses whose graphs keep 1 MiB of saved tensors each, and are four bytes themselves
    losses = []
    hooks = saved_tensors_hooks(lambda tensor: (tensor.detach(), 1), lambda packed: packed[0])
    with hooks if is_packed else nullcontext():  # as tbmem's own are on in a window
        for _ in range(3):
            x = torch.ones(256 * KIB, requires_grad=True) * 1.0
            losses.append((x * x).sum())
            del x

    found = _look()

    (holding,) = [one for name, one in found.items() if name.startswith("list 'losses'")]
    assert holding.bytes >= 3 * MIB
    assert holding.largest == "saved by MulBackward0"


def test_what_is_left_of_a_graph_after_its_backward_pass_is_its_nodes() -> None:
    # given losses whose graphs have freed what they saved
    losses = []
    for _ in range(20):
        loss = (torch.ones(4, requires_grad=True) * 2).sum()
        loss.backward()
        losses.append(loss)

    found = _look()

    (holding,) = [one for name, one in found.items() if name.startswith("list 'losses'")]
    assert holding.bytes >= 19 * 2 * NODE_BYTES  # the last one is another variable too
    assert holding.largest == "nodes of its graph"
    assert 19 <= holding.count <= 20  # losses, not nodes


def test_arrays_and_bytes_of_the_host() -> None:
    table, buffer = np.zeros(MIB), bytearray(3 * MIB)

    found = _look()

    reference = "test_arrays_and_bytes_of_the_host()"
    assert found[f"ndarray 'table' in {reference}"].bytes == table.nbytes
    assert found[f"bytearray 'buffer' in {reference}"].bytes == len(buffer)


def test_a_module_level_list_and_a_view() -> None:
    kept_by_a_module.append(torch.ones(MIB)[:1])
    try:
        found = _look()
    finally:
        kept_by_a_module.clear()

    # all of the storage behind the view counts
    assert found["module-level list 'kept_by_a_module' in test_live_memory.py"].bytes == 4 * MIB


def test_the_line_that_asked() -> None:
    def ask() -> str:
        return asking_line(sys._getframe())

    def fail() -> None:
        raise MemoryError

    assert ask().startswith("test_live_memory.py:")
    assert ask().endswith(" in ask()")
    with pytest.raises(MemoryError) as caught:
        fail()
    frame = innermost_frame(caught.value.__traceback__)
    assert raising_line(caught.value.__traceback__).endswith(" in fail()")
    assert frame is not None
    assert frame.f_code.co_name == "fail"
    assert (asking_line(None), raising_line(None), innermost_frame(None)) == ("", "", None)


LOOKS_UNDER_A_PROFILER = """
import sys
from tbmem.sources.retainers.live_memory import live_memory

calls = 0
many = [[str(number)] for number in range(20_000)]

def count(frame, event, argument):
    global calls
    calls += 1

sys.setprofile(count)
try:
    live_memory(sys._getframe())
finally:
    sys.setprofile(None)
print(calls)
"""


def test_under_a_profiler_that_records_calls_less_is_looked_at() -> None:
    # given a process of its own: what other tests of this one keep alive would be looked at as well
    done = subprocess.run([sys.executable, "-c", LOOKS_UNDER_A_PROFILER], capture_output=True, text=True, timeout=120)

    # then: each call would be an event of the profiler's trace, and the heap has many more objects
    assert done.stderr == ""
    assert 0 < int(done.stdout) < 300_000
