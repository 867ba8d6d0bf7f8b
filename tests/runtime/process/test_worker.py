"""Items are handled in a thread of their own, and never held up by it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tbmem.runtime.process.worker import Worker


def test_all_items_are_handled_in_order_before_the_end() -> None:
    # given
    handled: list[int] = []
    worker: Worker[int] = Worker("tbmem test", handled.extend, most=100)
    # when
    for number in range(10):
        worker.put([number])
    worker.end()
    # then
    assert worker.join(10)
    assert handled == list(range(10))


def test_without_items_there_is_no_thread() -> None:
    worker: Worker[int] = Worker("tbmem test", print, most=1)

    worker.put([])
    worker.end()

    assert worker.join(0)


def test_of_too_many_items_the_oldest_are_left_out() -> None:
    # given a function that has not returned from its first item
    started, gate, handled = threading.Event(), threading.Event(), list[int]()

    def handle(items: Sequence[int]) -> None:
        handled.extend(items)
        started.set()
        gate.wait(30)

    worker: Worker[int] = Worker("tbmem test", handle, most=3)
    worker.put([0])
    assert started.wait(10)
    # when
    worker.put(range(1, 10))
    worker.end()
    # then
    assert not worker.join(0)
    gate.set()
    assert worker.join(10)
    assert handled == [0, 7, 8, 9]
