"""The benchmark that runs public programs: how they are compared, faults put into them, growth measured."""

from __future__ import annotations

import ast
from types import ModuleType
from typing import Any

import pytest

from tests.benchmarks.conftest import load
from tests.conftest import PROJECT


@pytest.fixture(scope="module")
def programs() -> ModuleType:
    """benchmarks/programs.py as a module: it is in no package."""
    return load(PROJECT / "benchmarks" / "programs.py")


def ended(programs: ModuleType, output: str, *, interrupted: bool = False) -> Any:
    return programs.Ended(0, interrupted, 1.0, 1.0, 1, output, "")


def test_growth_is_the_slope_of_the_second_half_and_no_single_step_counts(programs: ModuleType) -> None:
    # given: a level that is reached in the first half, then 1,000 bytes a step, and one step with much more
    levels = {step: 5_000_000 if step < 50 else 5_000_000 + 1_000 * (step - 50) for step in range(1, 101)}
    levels[80] += 90_000_000
    # when, then
    assert programs.growth(levels) == pytest.approx(1_000)
    assert programs.growth({1: 5}) is None


def test_outputs_are_compared_without_times_and_as_far_as_both_came(programs: ModuleType) -> None:
    # given
    plain = ended(programs, "loss 0.5 in 3.1 s\nloss 0.4\nloss 0.3\n")
    # when, then
    assert programs.compared(plain, ended(programs, "loss 0.5 in 9.9 s\nloss 0.4\nloss 0.3\n")) == (True, 3)
    assert programs.compared(plain, ended(programs, "loss 0.5 in 9.9 s\nloss 0.1\nloss 0.3\n")) == (False, 2)
    assert programs.compared(plain, ended(programs, "loss 0.5 in 9.9 s\nloss 0.4\n", interrupted=True)) == (True, 1)


def test_a_fault_keeps_the_indentation_and_stands_below_imports_from_the_future(programs: ModuleType) -> None:
    # given
    fault = programs.Fault(
        "a", "b", "loss.backward()", "loss.backward()\nkept.append(loss)", "append", "kept", top="kept = []"
    )
    source = "from __future__ import annotations\nfor loss in losses:\n    loss.backward()\n"
    # when
    text = programs._with_fault(source, fault)
    # then
    ast.parse(text)
    assert text.splitlines() == [
        "from __future__ import annotations",
        "kept = []",
        "for loss in losses:",
        "    loss.backward()",
        "    kept.append(loss)",
    ]
