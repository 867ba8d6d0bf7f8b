"""A list of the last values of a series."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class BoundedList(list[T]):
    """Keeps the last ``maxlen`` values that were appended.

    A ``deque`` of that length would do, but as values pass through it, it takes blocks of 528 bytes from malloc and
    gives them back. One that lies between two buffers which a profiler window has just freed splits their space: the
    next window's buffers no longer fit, and the heap of a long run grows by 8 MiB (``benchmarks/soak.py``). A list
    that has reached its length stays where it is.
    """

    __slots__ = ("_maxlen",)

    def __init__(self, maxlen: int) -> None:
        super().__init__()
        self._maxlen = maxlen

    def append(self, value: T) -> None:
        """Add a value and drop the oldest one where there are too many."""
        super().append(value)
        if len(self) > self._maxlen:
            del self[0]

    def extend(self, values: Iterable[T]) -> None:
        """Add values in their order and drop the oldest where there are too many."""
        super().extend(values)
        if len(self) > self._maxlen:
            del self[: -self._maxlen]
