"""SharedPeak: a peak counter that is reset when it is read, shared by several readers."""

from __future__ import annotations

from collections.abc import Callable

Peaks = tuple[int, ...]
"""One or more peaks that are reset together, in bytes."""


class SharedPeak:
    """One resetting counter, shared by all monitors of a process.

    Two monitors that reset the same counter would each see only what happened since the other's reset.
    """

    def __init__(self, reset: Callable[[], object]) -> None:
        self._reset = reset
        self._missed: dict[object, Peaks] = {}

    def join(self, reader: object) -> SharedPeak:
        """Count ``reader`` in from now on."""
        self._missed[reader] = ()
        return self

    def leave(self, reader: object) -> None:
        """Forget ``reader``."""
        self._missed.pop(reader, None)

    def take(self, reader: object, reached: Peaks, *, reset: bool = True) -> Peaks:
        """The peaks since this reader's last call, after which the counter starts anew.

        Args:
            reader: Who asks; must have joined.
            reached: What the counter says now.
            reset: False where the level is as high as the peak, so that there is nothing to bring down.
        """
        if len(self._missed) == 1 and not self._missed[reader]:
            if reset:
                self._reset()
            return reached
        if len(self._missed) > 1:
            for other, missed in self._missed.items():
                self._missed[other] = _larger(reached, missed)
        reached, self._missed[reader] = _larger(reached, self._missed[reader]), ()
        if reset:
            self._reset()
        return reached


def _larger(left: Peaks, right: Peaks) -> Peaks:
    return tuple(map(max, left, right)) if right else left
