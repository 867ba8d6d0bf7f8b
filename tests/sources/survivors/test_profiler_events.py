from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._C._profiler import RecordScope, _EventType

from tbmem.sources.survivors.frame_lines import Frame, OperatorCall, UserLines
from tbmem.sources.survivors.profiler_events import StepEvents, noted_lines
from tbmem.sources.survivors.tracker import AllocationSite, Survivor

pytestmark = pytest.mark.torch_versions

ME = __file__
TORCH = "torch/nn/modules/module.py"


class Node:
    """A stand-in for torch's event."""

    def __init__(self, tag: Any, name: str, fields: Any, children: tuple[Node, ...] = ()) -> None:
        self.tag = tag
        self.name = name
        self.extra_fields = fields
        self.children = list(children)
        self.parent: Node | None = None
        self.start_time_ns = -1

    def stamp(self, clock: Iterator[int], parent: Node | None = None) -> None:
        """Times in the order in which events begin."""
        self.parent = parent
        self.start_time_ns = next(clock)
        for child in self.children:
            child.stamp(clock, self)


def _state(file: str, line: int, function: str = "step") -> SimpleNamespace:
    return SimpleNamespace(file_name=file, line_number=line, function_name=function)


def call(file: str, line: int, *children: Node, into: tuple[str, int] = (TORCH, 1), function: str = "step") -> Node:
    """A call of a Python function from a line."""
    fields = SimpleNamespace(caller=_state(file, line, function), callsite=_state(*into, "inner"))
    return Node(_EventType.PyCall, f"{into[0]}({into[1]}): inner", fields, children)


def c_call(file: str, line: int, *children: Node) -> Node:
    """A call of a function written in C."""
    return Node(_EventType.PyCCall, "<built-in>", SimpleNamespace(caller=_state(file, line)), children)


def operator(name: str, *children: Node, scope: RecordScope = RecordScope.FUNCTION) -> Node:
    return Node(_EventType.TorchOp, name, SimpleNamespace(scope=scope), children)


def memory(address: int, size: int, device: str = "cpu") -> Node:
    fields = SimpleNamespace(ptr=address, alloc_size=size, device=SimpleNamespace(type=device))
    return Node(_EventType.Allocation, "[memory]", fields)


def _read(*roots: Node) -> StepEvents:
    clock = count()
    for root in roots:
        root.stamp(clock)
    return StepEvents.read(roots, UserLines())


def _site(*roots: Node) -> AllocationSite:
    (birth,) = _read(*roots).survivors.values()
    return birth.site


def test_what_is_alive_at_the_end_of_the_step_was_born_in_it() -> None:
    events = _read(memory(1, 100), memory(2, 200), memory(1, -100))

    assert events.survivors == {2: Survivor(200, AllocationSite())}
    assert events.sizes == [100]


def test_a_free_of_something_older_is_told() -> None:
    assert 7 in _read(memory(7, -100)).freed


def test_an_address_that_is_used_again_was_freed_by_somebody_unseen() -> None:
    # given a free in another thread, which no profiler sees
    events = _read(memory(7, 100))

    assert 7 in events.freed
    assert 7 in events.survivors


def test_memory_of_another_device_is_not_counted() -> None:
    events = _read(memory(1, 100, "cuda"), memory(2, -100, "cuda"))

    assert (events.survivors, events.freed, events.sizes) == ({}, [], [])


def test_events_of_two_threads_are_read_in_the_order_of_time() -> None:
    # given a block that one thread allocates and another, whose tree comes first, frees
    free, birth = operator("aten::a", memory(1, -100)), operator("aten::b", memory(1, 100))
    clock = count()
    birth.stamp(clock)
    free.stamp(clock)

    events = StepEvents.read([free, birth], UserLines())

    assert events.survivors == {}


def test_lines_are_the_users_innermost_first() -> None:
    linear = operator("aten::linear", operator("aten::addmm", memory(1, 8)))
    site = _site(_rooted(call(ME, 3, call(ME, 10, c_call(TORCH, 5, linear)), into=(ME, 9))))

    assert site == AllocationSite((Frame(ME, 10, "step"), Frame(ME, 3, "step")), "aten::linear")


def _rooted(*children: Node) -> Node:
    """Inside the module that runs: the root's caller is itself."""
    return call(ME, 99, *children, into=(ME, 99), function="<module>")


def test_a_function_in_c_adds_no_frame_of_its_own() -> None:
    # given next(loader), where next calls a Python function
    inner = call(ME, 10, c_call(TORCH, 5, operator("aten::stack", memory(1, 8))))

    assert _site(_rooted(c_call(ME, 10, inner))).frames == (Frame(ME, 10, "step"),)


def test_the_operator_is_the_outermost_below_python() -> None:
    # given a function of autograd whose own forward calls another operator
    forward = call(TORCH, 5, c_call(ME, 12, operator("aten::mul", memory(1, 8))), into=(ME, 11))
    site = _site(_rooted(c_call(ME, 20, operator("MyFunction", forward))))

    assert site.operator == "aten::mul"
    assert [frame.line for frame in site.frames] == [12, 20]


def test_an_annotation_is_no_operator() -> None:
    annotation = operator("my phase", operator("aten::mm", memory(1, 8)), scope=RecordScope.USER_SCOPE)

    assert _site(_rooted(c_call(ME, 4, annotation))).operator == "aten::mm"


def test_what_autograd_runs_is_told_with_the_line_that_called_backward() -> None:
    node = operator("MmBackward0", operator("aten::mm", memory(1, 8)), scope=RecordScope.BACKWARD_FUNCTION)
    engine = operator("autograd::engine::evaluate_function: MmBackward0", node)
    site = _site(_rooted(call(ME, 31, c_call(TORCH, 989, engine))))

    assert site == AllocationSite((Frame(ME, 31, "step"),), "MmBackward0", in_backward=True)


def test_an_operator_that_python_calls_silently_is_bounded_by_its_neighbours() -> None:
    # given y = x * 2 * 3 between two calls
    product = operator("aten::mul", memory(1, 8))
    step = call(ME, 50, c_call(ME, 11), operator("aten::mul"), product, c_call(ME, 14), into=(ME, 10))

    frames = _site(_rooted(step)).frames

    assert frames == (Frame(ME, 0, "inner", OperatorCall("aten::mul", 10, 11, 14, 1)), Frame(ME, 50, "step"))


def test_a_number_that_python_makes_a_tensor_of_belongs_to_the_operator_after_it() -> None:
    step = call(ME, 50, c_call(ME, 11), memory(1, 8), operator("aten::mul"), c_call(ME, 11), into=(ME, 10))

    site = _site(_rooted(step))

    assert site.operator == "aten::mul"
    assert site.frames[0].call == OperatorCall("aten::mul", 10, 11, 11, 0)


def test_for_a_trace_the_line_of_each_call_above_an_allocation_is_noted() -> None:
    # given a module of torch's that allocates, and a call that allocates no_operation
    linear = call(TORCH, 5, operator("aten::linear", memory(1, 8)), into=(TORCH, 1))
    root = _rooted(call(ME, 10, linear, into=(ME, 9)), c_call(ME, 11))
    root.stamp(count(100))

    found = noted_lines([root], UserLines())

    # then the root, which nobody called, tells none
    assert found.calls is not None
    assert list(zip(found.calls.ns.tolist(), found.calls.line.tolist(), strict=True)) == [(101, 10), (102, 5)]
    assert not len(found.operators.ns)


def test_for_a_trace_the_line_of_an_operator_is_noted_by_its_allocation() -> None:
    # given an operator between two calls of one line, and a free
    added = operator("aten::add", memory(1, 8), memory(2, -8))
    root = _rooted(c_call(ME, 12), added, c_call(ME, 12))
    root.stamp(count(100))

    found = noted_lines([root], UserLines())

    assert (found.operators.ns.tolist(), found.operators.line.tolist()) == ([103], [12])


def test_for_a_trace_the_folder_of_what_is_installed_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a package of which torch's profiler tells the path below sys.path only
    installed = tmp_path / "site-packages"
    installed.mkdir()
    (installed / "hub.py").touch()
    monkeypatch.syspath_prepend(str(installed))
    root = _rooted(call(ME, 10, operator("aten::add", memory(1, 8)), into=("hub.py", 1)))
    root.stamp(count())

    assert noted_lines([root], UserLines()).files == {"hub.py": str(installed / "hub.py")}
