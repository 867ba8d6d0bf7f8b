"""A daemon thread that handles items in batches, for work that may take any time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Passes items to a function in a thread of its own, which starts with the first item.

    Args:
        name: The thread's name.
        handle: Called with the items that have come since its last call.
        most: Items that may wait; of more the oldest are left out.
    """

    def __init__(self, name: str, handle: Callable[[Sequence[T]], object], most: int) -> None:
        self._name = name
        self._handle = handle
        self._most = most
        self._waiting: list[T] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def put(self, items: Iterable[T]) -> None:
        """Queue items; never waits for the function."""
        with self._changed:
            self._waiting += items
            del self._waiting[: -self._most]
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify()

    def end(self) -> None:
        """End the thread after the items that wait now."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()

    def join(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the end; whether it has come."""
        if self._thread is not None:
            self._thread.join(max(seconds, 0.0))
        return self._thread is None or not self._thread.is_alive()

    def _work(self) -> None:
        while items := self._take():
            if sys.getprofile() is not None:
                sys.setprofile(None)  # torch's profiler would show this thread's calls, as in ``BackgroundWriter``
            self._handle(items)

    def _take(self) -> list[T]:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._has_ended)
            items, self._waiting = self._waiting, []
            return items
