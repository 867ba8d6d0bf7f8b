"""Objects are listed without disturbing a thread that is making one, and without running code of theirs."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem.sources.program import tracked_objects
from tbmem.sources.retainers.object_counts import ObjectTable
from tbmem.sources.torch_state import profiler_state

LISTED = [1]
LOOKS: dict[str, Callable[[], object]] = {
    "objects of a kind": lambda: tracked_objects.objects_of((list, dict, tuple, frozenset)),
    "live objects": lambda: tracked_objects.live_objects(torch.Tensor, object),
    "one object": lambda: tracked_objects.object_at(id(LISTED), id(list)),
    "referrers": lambda: tracked_objects.referrers([LISTED, *"abc", list]),
    "table": ObjectTable,
    "profiles": profiler_state.prepared_profiles,
}


@contextmanager
def tuples_being_made() -> Iterator[list[BaseException]]:
    """In the block, another thread makes tuples from generators of plain objects; yields what that has raised."""
    raised: list[BaseException] = []
    is_over = threading.Event()

    def make() -> None:
        while not is_over.is_set():
            try:
                tuple(LISTED if number % 2 else "abc" for number in range(60))
            except BaseException as error:
                raised.append(error)

    interval = sys.getswitchinterval()
    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield raised
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("name", LOOKS)
def test_another_thread_can_make_a_tuple_meanwhile(name: str) -> None:
    # when
    with tuples_being_made() as raised:
        for _ in range(10):
            LOOKS[name]()
    # then
    assert raised == []


def test_plain_lists_of_the_collectors_disturb_it() -> None:
    # given / when: what this module is for, and that the test above would notice
    with tuples_being_made() as raised:
        for _ in range(5000):
            everything = gc.get_objects(generation=0)
            sum(1 for _ in everything)
            del everything
            if raised:
                break
    # then
    assert isinstance(raised[0], SystemError)


def test_objects_are_found_by_type_and_no_tuple_is() -> None:
    class Thing:
        pass

    class Special(Thing):
        pass

    # given
    things = [Thing(), Special()]
    # when
    (every,) = tracked_objects.live_objects(Thing)
    exact = tracked_objects.objects_of([Thing])
    tuples = tracked_objects.objects_of([tuple, frozenset])
    # then
    assert {id(one) for one in every} == {id(one) for one in things}
    assert {id(one) for one in tracked_objects.instances(Thing)} == {id(one) for one in things}
    assert exact == things[:1]
    assert tuples == []
    assert tracked_objects.object_at(id(things[1]), id(Special)) is things[1]
    assert tracked_objects.object_at(id(things[1]), id(Thing)) is None


def test_nothing_of_the_programs_is_asked() -> None:
    class Loud(type):
        def __hash__(cls) -> int:
            raise AssertionError("hash")

        def __eq__(cls, other: object) -> bool:
            raise AssertionError("eq")

    class Silent(metaclass=Loud):
        @property
        def __class__(self) -> Any:
            raise AssertionError("class")

    # given
    silent = Silent()
    # when
    found = tracked_objects.objects_of([Silent])
    everything = tracked_objects.live_objects(object)[0]
    # then
    assert len(found) == 1
    assert found[0] is silent
    assert tracked_objects.instances(Silent)[0] is silent
    assert any(one is silent for one in everything)
    # and a table of what can grow goes without it
    assert ObjectTable().containers()


def test_neither_an_audit_hook_nor_a_trace_function_runs_while_objects_are_listed() -> None:
    # given
    program = """
import sys
from tbmem.sources.program import tracked_objects
events = []
sys.addaudithook(lambda event, args: events.append(event))
tracked_objects._collected(lambda: tracked_objects.chain.from_iterable(
    tracked_objects._selected(tracked_objects._all_objects(), frozenset((object.__hash__(dict),)))
))
print(sorted(set(events)))
"""
    # when
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    # then
    assert answer.stdout.strip() == "['gc.get_objects']"


def test_what_is_returned_is_all_that_stays() -> None:
    class Thing:
        pass

    # given
    thing = Thing()
    gone = weakref.ref(thing)
    gc.disable()
    try:
        # when
        tracked_objects.objects_of([dict])
        tracked_objects.referrers([thing])
        del thing
        # then without a collection
        assert gone() is None
    finally:
        gc.enable()


def test_the_collector_is_left_as_it_was() -> None:
    tracked_objects.objects_of([dict])
    assert gc.isenabled()

    gc.disable()
    try:
        tracked_objects.objects_of([dict])
        tracked_objects.referrers([LISTED])
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_tuple_is_a_holder_where_something_refers_to_it() -> None:
    # given
    one = [0]
    direct, pair, nested = [one], (one, 1), ((one, 2), 3)
    namespace, other = {"pair": pair}, {"nested": nested}
    # when
    found = {id(each) for each in tracked_objects.referrers([one])}
    # then
    assert {id(each) for each in (direct, pair, nested, nested[0], namespace, other)} <= found


def test_without_the_interpreters_lock_nothing_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)

    assert not tracked_objects.can_list()
    assert tracked_objects.live_objects(object) == [[]]
    assert tracked_objects.referrers([LISTED]) == []


def test_no_other_module_lists_objects() -> None:
    # given
    package = Path(tracked_objects.__file__).parents[2]
    # when
    users = {
        path.name for path in package.rglob("*.py") if re.search(r"gc\.get_(objects|referrers)\b[^`]", path.read_text())
    }
    # then
    assert users == {"tracked_objects.py"}
