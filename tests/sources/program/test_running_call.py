"""Names of what a frame was calling, from frames that are stopped in the middle of an expression."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from tbmem.sources.program.running_call import RunningCall

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python tells columns since 3.11")

FILE = "<running call>"


class Stopping:
    """An operand that notes the frame it is used in."""

    def __init__(self) -> None:
        self.frames: list[FrameType] = []

    def _note(self, *values: object) -> Stopping:
        self.frames.append(sys._getframe(1))
        self.seen = RunningCall.of(self.frames[-1])
        return self

    softmax = __call__ = __add__ = __iadd__ = __matmul__ = __lt__ = __getitem__ = run_backward = _note


@pytest.fixture
def linked() -> Iterator[dict[str, Any]]:
    yield linecache.cache
    linecache.cache.pop(FILE, None)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("F.softmax(1, -1)", "softmax"),
        ("F(2)", "F"),
        ("F @ F", "@"),
        ("F < F", "<"),
        ("F[0]", "indexing"),
        ("F += F", "+"),
        ("ä = [F.softmax(\n    1,  # of two lines\n    2,\n), 'ü']", "softmax"),
        ("F.run_backward()", "the backward pass"),
    ],
)
def test_the_call_of_a_frame_is_named(source: str, name: str, linked: dict[str, Any]) -> None:
    # given
    linked[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    operand = Stopping()
    # when
    exec(compile(source, FILE, "exec"), {"F": operand})
    # then
    assert operand.seen is not None
    assert operand.seen.name() == name


def test_a_source_that_cannot_be_read_has_no_name() -> None:
    assert RunningCall("/nowhere/train.py", 3, 3, 4, 20).name() == ""
    assert RunningCall(__file__, 1, 1, 0, 9).name() == ""
