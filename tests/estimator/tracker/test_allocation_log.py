"""A log of allocations that is written by hand, and what is made of it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tbmem.estimator.tracker.allocation_log import DEEPEST, AllocationLog, SourceLines
from tbmem.model.category import Category, Phase
from tbmem.model.simulated_run import SimulatedRun


def _alloc(log: AllocationLog, size: int = 512, **others: Any) -> int:
    return log.alloc(size, "aten::mm", "", log.phase, **others)


def _run(log: AllocationLog) -> SimulatedRun:
    return log.run((), {})


def test_allocations_and_frees_share_one_count() -> None:
    # given
    log = AllocationLog()
    log.begin_step(0)
    first = log.alloc(100, "aten::mm", "net.0", Phase.FORWARD)
    second = log.alloc(200, "aten::add", "", Phase.FORWARD, stack=3)
    # when it is freed twice, as by two views of a storage
    log.free(first)
    log.free(first)
    third = log.alloc(300, "aten::mm", "net.1", Phase.BACKWARD)
    log.set_module(third, "net.0")
    run = log.run(("One note.",), {"device": "cuda"})
    # then
    assert (first, second, third) == (0, 1, 2)
    assert (run.alloc_event.tolist(), run.free_event.tolist()) == ([0, 1, 3], [2, -1, -1])
    assert (run.size.tolist(), run.stack.tolist()) == ([100, 200, 300], [-1, 3, -1])
    assert [run.operators[number] for number in run.operator] == ["aten::mm", "aten::add", "aten::mm"]
    assert [run.modules[number] if number >= 0 else "" for number in run.module] == ["net.0", "", "net.0"]
    assert (run.notes, run.about["device"], run.about["step_starts"]) == (("One note.",), "cuda", [0])


def test_what_the_forward_pass_leaves_for_the_backward_pass_is_an_activation() -> None:
    # given two steps, each with a forward that frees one of two, and a backward pass
    log = AllocationLog()
    for step in range(2):
        log.begin_step(step)
        log.begin_phase(Phase.FORWARD)
        kept, freed = _alloc(log), _alloc(log)
        log.free(freed)
        log.begin_phase(Phase.BACKWARD)
        made = _alloc(log)
        gradient = _alloc(log)
        log.categories[gradient] = Category.GRADIENT
        for row in (kept, made):
            log.free(row)
        log.begin_phase(Phase.OPTIMIZER)
        log.free(_alloc(log))
    # when something is freed after a forward that has no backward pass, it is temporary
    log.begin_phase(Phase.FORWARD)
    log.free(_alloc(log))
    # then
    step_of = [Category.ACTIVATION, Category.TEMPORARY, Category.AUTOGRAD_DETAIL, Category.GRADIENT, Category.TEMPORARY]
    assert _run(log).category.tolist() == [*step_of, *step_of, Category.TEMPORARY]


def test_what_the_setup_makes_stays_unknown() -> None:
    log = AllocationLog()
    _alloc(log)

    assert _run(log).category.tolist() == [Category.UNKNOWN]


def test_a_sum_of_gradients_is_in_the_memory_of_its_operand() -> None:
    # given a gradient of 1,000 bytes, to which two others are added; of each sum the operand is freed at once
    log = AllocationLog()
    first = _alloc(log, 1000)
    total = first
    for _ in range(2):
        total, old = _alloc(log, 1010, accumulates=True), total
        log.free(old)
    log.categories[total] = Category.GRADIENT
    # when
    run = _run(log)
    # then there is one allocation, which lives on as the sum's category
    assert (run.size.tolist(), run.free_event.tolist()) == ([1000], [-1])
    assert run.category.tolist() == [Category.GRADIENT]


@pytest.mark.parametrize(("size", "waits"), [(2000, False), (1000, True)], ids=["another size", "freed later"])
def test_a_sum_of_another_size_or_beside_its_operand_has_its_own_memory(size: int, waits: bool) -> None:
    # given
    log = AllocationLog()
    operand = _alloc(log, 1000)
    _alloc(log, size, accumulates=True)
    if waits:
        _alloc(log, 8)
    log.free(operand)
    # then
    assert len(_run(log)) == (3 if waits else 2)


def test_stacks_are_of_user_code_and_are_counted_once() -> None:
    # given
    lines = SourceLines()

    def deeper(levels: int) -> int:
        return deeper(levels - 1) if levels else lines.current_stack()

    # when
    stacks = [deeper(1), deeper(1), deeper(2), deeper(50)]
    # then
    assert stacks == [0, 0, 1, 2]
    table = lines.table()
    assert {(frame.file, frame.function) for frame in table[0][:2]} == {(__file__, "deeper")}
    assert table[0][2].function == test_stacks_are_of_user_code_and_are_counted_once.__name__
    assert len(table[2]) == DEEPEST


def test_the_current_line_is_the_callers() -> None:
    frame = inspect.currentframe()

    line = SourceLines().current_line()

    assert frame is not None
    assert line == f"test_allocation_log.py:{frame.f_lineno - 3}"
