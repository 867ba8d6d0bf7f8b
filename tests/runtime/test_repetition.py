"""What a piece of work keeps each time, with the lines that were seen."""

from __future__ import annotations

import sys

import torch

from tbmem.runtime.meter import MemoryMeter
from tbmem.runtime.repetition import REPETITIONS, kept_by, kept_in_steps

kept: list[torch.Tensor] = []


def add_to(holder: list[torch.Tensor]) -> None:
    holder.append(torch.zeros(1000))


def never_called() -> None:
    kept.append(torch.zeros(1))


def test_the_line_is_the_one_that_ran_not_one_that_reads_like_it() -> None:
    # given work that feeds a list under another name
    def repeat() -> bool:
        add_to(kept)
        return True

    # when
    (holder,) = kept_by(repeat, {})
    # then
    assert holder.name == "module-level list 'kept' in test_repetition.py"
    assert holder.bytes >= REPETITIONS * 4000
    assert [line.partition("  ")[2] for line in holder.lines] == ["holder.append(torch.zeros(1000))"]
    assert sys.gettrace() is None
    kept.clear()


def test_what_has_a_name_in_no_variable_is_named_too() -> None:
    # given a list that only a framework holds, as a fixture
    held: dict[str, list[torch.Tensor]] = {"mine": []}

    def repeat(values: list[torch.Tensor] = held["mine"]) -> bool:
        add_to(values)
        return True

    # when
    (holder,) = kept_by(repeat, {__file__: held})
    # then
    assert "mine" in holder.name


def test_work_that_cannot_be_repeated_has_kept_what_it_has_kept() -> None:
    # given
    times: list[int] = []

    def repeat() -> bool:
        times.append(1)
        add_to(kept)
        return len(times) < 2

    # when
    (holder,) = kept_by(repeat, {})
    # then no line was seen: those that read as if are told
    assert len(times) == 2
    assert [line.partition("  ")[2] for line in holder.lines] == ["kept.append(torch.zeros(1))"]
    kept.clear()


def test_what_grows_in_a_loop_of_its_own_is_found_while_it_is_there() -> None:
    # given
    meter = MemoryMeter("cpu")

    def run() -> bool:
        outputs = []
        for _ in range(10):
            outputs.append(torch.zeros(1000))
            meter.step()
        return True

    # when
    (holder,) = kept_in_steps(run, meter, {})
    # then
    assert "'outputs'" in holder.name
    assert round(holder.bytes_per_step) in range(4000, 4600)
    assert [line.text for line in holder.lines] == ["outputs.append(torch.zeros(1000))"]
    assert meter.observer is None
    assert sys.gettrace() is None
    meter.close()
