"""Answers that cost time go in; they come out again at once, as long as there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable

_MOST_BYTES = 64 << 20


class Kept:
    """The answers that were asked for last.

    Args:
        most_bytes: All of them together.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lock = threading.Lock()
        self._answers: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The answer of a question.

        Args:
            key: The question, and what its answer depends on.
            make: Answers it; not called if the answer is known.
        """
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        answer = make()
        with self._lock:
            self._bytes += len(answer) - len(self._answers.get(key, b""))
            self._answers[key] = answer
            while self._bytes > self._most_bytes and len(self._answers) > 1:
                _, gone = self._answers.popitem(last=False)
                self._bytes -= len(gone)
        return answer
