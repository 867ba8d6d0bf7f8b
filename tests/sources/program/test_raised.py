"""The line at which the program raised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tbmem.sources.program.raised import raised_at


def _in_a_library() -> None:
    torch.zeros(2) @ torch.zeros(3)


def _in_its_own_code() -> None:
    raise ValueError("no labels")


@pytest.mark.parametrize("function", [_in_a_library, _in_its_own_code])
def test_the_line_is_the_programs_own(function: Callable[[], None]) -> None:
    # given
    with pytest.raises((RuntimeError, ValueError)) as raised:
        function()
    # when
    line = raised_at(raised.value)
    # then
    assert line is not None
    assert (line.file, line.function) == (__file__, function.__name__)
    assert line.line == function.__code__.co_firstlineno + 1
    assert line.text.startswith(("torch.zeros", "raise ValueError"))


def test_an_exception_that_was_not_raised_has_none() -> None:
    assert raised_at(ValueError("no labels")) is None
