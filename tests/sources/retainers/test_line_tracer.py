"""Which lines are seen while something grows, and that nothing else changes by looking."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tbmem.sources.program.ownership import local_of
from tbmem.sources.retainers import line_tracer as lines
from tbmem.sources.retainers.line_tracer import LineTracer
from tbmem.sources.retainers.probes import SizeProbe, ValueProbe, ValueReader


@pytest.fixture
def watch() -> Iterator[type[LineTracer]]:
    """What a test may start; whatever happens in it, nobody traces afterwards."""
    before = sys.gettrace()
    sys.settrace(None)
    yield LineTracer
    sys.settrace(before)


def lines_of(found: LineTracer, key: str) -> list[int]:
    return [line for _, line in found.lines(key)]


def here() -> int:
    """Number of the line that calls."""
    frame = sys._getframe(1)
    return frame.f_lineno


def test_the_line_that_appends_is_seen(watch: type[LineTracer]) -> None:
    kept: list[int] = []
    other: list[int] = []
    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()

    assert found.start(frame)
    other.append(1)
    kept.append(1)
    line = here() - 1
    other.append(1)
    found.stop(frame)

    assert lines_of(found, "kept") == [line]


def test_the_line_in_a_function_that_is_called_is_seen(watch: type[LineTracer]) -> None:
    kept: list[int] = []

    def add() -> None:
        kept.append(1)

    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()
    found.start(frame)
    add()
    found.stop(frame)

    assert lines_of(found, "kept") == [add.__code__.co_firstlineno + 1]
    assert found.lines("kept")[0][0] is add.__code__


def test_what_a_library_adds_counts_for_the_line_that_called_it(watch: type[LineTracer]) -> None:
    import queue

    inbox: queue.Queue[int] = queue.Queue()
    found = watch({"inbox": SizeProbe(inbox.queue, lambda one: one.__len__())})
    frame = sys._getframe()
    found.start(frame)
    inbox.put(1)
    line = here() - 1
    found.stop(frame)

    assert lines_of(found, "inbox") == [line]


def test_a_library_that_calls_back_first_is_not_mistaken(watch: type[LineTracer]) -> None:
    # given a library function that calls the user's function, and adds something itself afterwards
    import heapq

    heap: list[Any] = []

    class Weight:
        def __lt__(self, other: object) -> bool:
            return True

    heap.append(Weight())
    found = watch({"heap": SizeProbe(heap, list.__len__)})
    frame = sys._getframe()
    found.start(frame)

    # when it is called
    heapq.heappush(heap, Weight())
    line = here() - 1
    found.stop(frame)

    # then the line is the one that called it
    assert line in lines_of(found, "heap")


def test_the_most_frequent_line_comes_first(watch: type[LineTracer]) -> None:
    kept: list[int] = []
    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()
    found.start(frame)
    kept.append(0)
    first = here() - 1
    for i in range(3):
        kept.append(i)  # noqa: PERF402
    second = here() - 1
    found.stop(frame)

    assert lines_of(found, "kept") == [second, first]


def test_a_variable_that_is_replaced_is_seen(watch: type[LineTracer]) -> None:
    total = (0,)
    code = sys._getframe().f_code
    reader = ValueReader(None, lambda _, frame: local_of(frame, "total") if frame.f_code is code else None)
    probe = ValueProbe(reader, total)
    found = watch({"total": probe})
    frame = sys._getframe()
    found.start(frame)
    total = (*total, 1)
    line = here() - 1
    found.stop(frame)

    assert lines_of(found, "total") == [line]


def _numbers(kept: list[int]) -> Iterator[int]:
    while True:
        kept.append(1)
        yield len(kept)


def test_a_generator_is_followed_while_it_runs(watch: type[LineTracer]) -> None:
    kept: list[int] = []
    numbers = _numbers(kept)
    next(numbers)
    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()
    found.start(frame)
    next(numbers)
    next(numbers)
    found.stop(frame)

    assert lines_of(found, "kept") == [_numbers.__code__.co_firstlineno + 2]


def test_a_trace_function_that_is_set_is_left_alone(watch: type[LineTracer]) -> None:
    def debugger(frame: Any, event: str, arg: object) -> None:
        return None

    found = watch({"kept": SizeProbe([], list.__len__)})
    sys.settrace(debugger)
    started = found.start(sys._getframe())
    still = sys.gettrace()
    sys.settrace(None)

    assert not started
    assert still is debugger


def test_a_profile_function_that_is_set_is_left_alone(watch: type[LineTracer]) -> None:
    def profiler(frame: Any, event: str, arg: object) -> None:
        return None

    found = watch({"kept": SizeProbe([], list.__len__)})
    sys.setprofile(profiler)
    started = found.start(sys._getframe())
    still = sys.getprofile()
    sys.setprofile(None)

    assert not started
    assert still is profiler


def test_stopping_twice_and_without_a_start_is_fine(watch: type[LineTracer]) -> None:
    found = watch({"kept": SizeProbe([], list.__len__)})
    found.stop(None)
    found.start(sys._getframe())
    found.stop(sys._getframe())
    found.stop(sys._getframe())

    assert sys.gettrace() is None
    assert sys._getframe().f_trace is None


def test_too_many_lines_end_the_watch(watch: type[LineTracer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "EVENTS", 50)
    kept: list[int] = []
    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()
    found.start(frame)
    for i in range(1000):
        kept.append(i)  # noqa: PERF402
    found.stop(frame)

    assert found.overflowed
    assert len(kept) == 1000


def test_a_probe_that_fails_does_not_reach_the_user(watch: type[LineTracer]) -> None:
    class Failing:
        def grew(self, frame: Any) -> int:
            raise ValueError("no")

        def release(self) -> None:
            pass

    found = watch({"kept": Failing()})
    frame = sys._getframe()
    found.start(frame)
    total = sum(range(3))
    assert total == 3
    found.stop(frame)
    assert sys.gettrace() is None


def test_the_users_own_locals_stay(watch: type[LineTracer]) -> None:
    # given a function that keeps its locals() while it is watched
    kept: list[int] = []
    found = watch({"kept": SizeProbe(kept, list.__len__)})
    result = {}

    def train(rate: float) -> None:
        frame = sys._getframe()
        assert frame.f_locals["rate"] == rate
        found.start(frame)
        arguments = locals()
        _nothing()
        _nothing()
        found.stop(frame)
        result.update(arguments)

    # when it calls others
    train(0.5)

    # then they are still there
    assert result["rate"] == 0.5


def _nothing() -> None:
    pass


def test_variables_keep_their_values(watch: type[LineTracer]) -> None:
    def train() -> tuple[int, ...]:
        a, b = 1, 2
        frame = sys._getframe()
        local_of(frame, "a")
        found.start(frame)
        a = 5
        _nothing()
        c = a + b
        local_of(frame, "a")
        _nothing()
        b = 7
        found.stop(frame)
        return a, b, c

    found = watch({})

    assert train() == (5, 7, 7)


def test_a_list_that_is_replaced_by_a_longer_one_is_followed(watch: type[LineTracer]) -> None:
    code = sys._getframe().f_code
    kept = [0]
    reader = ValueReader(None, lambda _, frame: local_of(frame, "kept") if frame.f_code is code else None)
    probe = SizeProbe(kept, list.__len__, reader)
    found = watch({"kept": probe})
    frame = sys._getframe()
    found.start(frame)
    _nothing()
    kept = [*kept, 1]
    line = here() - 1
    _nothing()
    _nothing()
    found.stop(frame)

    assert set(lines_of(found, "kept")) <= {line, line + 2}
    assert probe.last == 2
    assert not probe.is_gone


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_other_threads_are_watched_too(watch: type[LineTracer]) -> None:
    kept: list[int] = []

    def add() -> None:
        kept.append(1)

    found = watch({"kept": SizeProbe(kept, list.__len__)})
    frame = sys._getframe()
    found.start(frame)
    thread = threading.Thread(target=add)
    thread.start()
    thread.join()
    found.stop(frame)

    assert lines_of(found, "kept") == [add.__code__.co_firstlineno + 1]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_the_tool_number_is_given_back(watch: type[LineTracer]) -> None:
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    before = [monitoring.get_tool(i) for i in range(6)]
    for _ in range(3):
        kept: list[int] = []
        found = watch({"kept": SizeProbe(kept, list.__len__)})
        assert found.start(sys._getframe())
        _nothing()
        kept.append(1)
        found.stop(sys._getframe())
        assert len(found.lines("kept")) == 1

    assert [monitoring.get_tool(i) for i in range(6)] == before


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs sys.monitoring")
def test_a_tool_number_that_the_program_wants_is_the_programs(watch: type[LineTracer]) -> None:
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    # given lines that are followed
    found = watch({"kept": SizeProbe([], list.__len__)})
    assert found.start(sys._getframe())
    (number,) = [number for number in range(6) if monitoring.get_tool(number) == "tbmem"]
    # when a tool of the program's takes the same number
    monitoring.use_tool_id(number, "own")
    found.stop(sys._getframe())
    # then it has it
    assert monitoring.get_tool(number) == "own"
    monitoring.free_tool_id(number)
