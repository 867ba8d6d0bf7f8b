"""What a hunt finds in loops that hold more and more, and that it leaves no trace in them."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tbmem.model.evidence import Contents, Holder, HolderKind, LineSource
from tbmem.sources.retainers.search import RetainerSearch
from tests.sources.leaks import LEAKS, Expected, tensor

pytestmark = pytest.mark.usefixtures("the_libraries_are_frozen")

LOOKS = (20, 26, 32)
WATCHED = 2


def hunt_in(step: Callable[[int], Any], looks: tuple[int, ...] = LOOKS) -> tuple[tuple[Holder, ...], tuple[str, ...]]:
    """Run a loop and hunt in it as the monitor does."""
    hunt = RetainerSearch()
    frame = sys._getframe()
    for i in range(looks[-1] + WATCHED):
        step(i)
        if i in looks:
            hunt.look(i, frame)
    hunt.trace(frame)
    for i in range(looks[-1] + WATCHED, looks[-1] + 2 * WATCHED):
        step(i)
    hunt.untrace(frame)
    found = hunt.result(frame)
    hunt.close()
    del frame  # a frame in a variable of its own is a cycle
    return found


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Garbage stays: otherwise a collection between two looks may hide that it grows."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("expected", LEAKS.values(), ids=LEAKS)
def test_the_holder_is_named_with_its_line(expected: Expected) -> None:
    # given a loop that holds more and more
    step = expected.make()

    # when it is hunted in
    holders, _ = hunt_in(step)

    # then the first holder is the one
    assert holders
    first = holders[0]
    assert first.name.startswith(expected.name)
    assert first.kind is expected.kind
    assert first.contents is expected.contents
    assert expected.low <= first.bytes_per_step <= expected.high
    assert first.lines
    if expected.line:
        assert first.lines[0].line == expected.line
        assert "# grows" in first.lines[0].text


def innocent_loss() -> Callable[[int], Any]:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    running = {"loss": 0.0}

    def step(i: int) -> None:
        loss = model(torch.randn(16, 64)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running["loss"] += loss.item()

    return step


def innocent_episodes() -> Callable[[int], Any]:
    """An actor-critic whose episodes lengthen: two lists that are emptied after each."""
    policy = torch.nn.Linear(4, 2)
    saved: list[Any] = []

    def step(i: int) -> None:
        del saved[:]
        saved.extend((0.5, policy(torch.randn(4)).sum()) for _ in range(4 + i))
        losses = [value * weight for weight, value in saved]
        torch.stack(losses).sum().backward()

    return step


def test_a_list_that_is_filled_anew_in_each_step_is_marked() -> None:
    # when
    holders, _ = hunt_in(innocent_episodes())
    # then
    found = [holder for holder in holders if "saved" in holder.name]
    assert found
    assert all(holder.is_emptied for holder in found)


def innocent_curriculum() -> Callable[[int], Any]:
    lin = torch.nn.Linear(32, 128)
    state: dict[str, Any] = {}

    def step(i: int) -> None:
        state["h"] = lin(torch.randn(8, 32 + 8 * i, 32))

    return step


def innocent_slices() -> Callable[[int], Any]:
    data = torch.randn(10_000, 64)
    seen: list[torch.Tensor] = []

    def step(i: int) -> None:
        seen.append(data[i : i + 8])

    return step


def innocent_references() -> Callable[[int], Any]:
    data = [torch.randn(1000) for _ in range(500)]
    order: list[torch.Tensor] = []

    def step(i: int) -> None:
        order.append(data[i * 37 % 500])

    return step


def innocent_truncated_state() -> Callable[[int], Any]:
    cell = torch.nn.GRUCell(16, 32)
    h = torch.zeros(4, 32)

    def step(i: int) -> None:
        nonlocal h
        h = cell(torch.randn(4, 16), h.detach())

    return step


@pytest.mark.parametrize(
    "make",
    [innocent_loss, innocent_curriculum, innocent_slices, innocent_references, innocent_truncated_state],
)
def test_an_innocent_loop_holds_nothing_large(make: Callable[[], Callable[[int], Any]]) -> None:
    holders, _ = hunt_in(make())

    assert [holder for holder in holders if holder.bytes_per_step >= 1024] == []


def test_a_bounded_holder_says_when_it_is_full() -> None:
    holders, _ = hunt_in(LEAKS["bounded_window"].make())

    assert holders[0].bound == 500
    assert holders[0].steps_left == pytest.approx(500 - 36, abs=1)


def test_a_bound_that_the_source_keeps_is_known() -> None:
    # given a replay buffer that is written by hand
    kept: list[torch.Tensor] = []

    def step(i: int) -> None:
        if len(kept) < 500:
            kept.append(tensor())

    # when
    holders, _ = hunt_in(step)
    # then
    assert (holders[0].bound, holders[0].steps_left) == (500, 500 - holders[0].length)


def test_a_bound_that_is_passed_by_is_none() -> None:
    # given a list that is bounded where its name stands, and filled under another one
    kept: list[torch.Tensor] = []
    alias = kept

    def step(i: int) -> None:
        if len(kept) < 500 and i < 0:
            kept.append(tensor())
        if len(kept) > 500:
            kept.pop()
        alias.append(tensor())

    # when
    holders, _ = hunt_in(step)
    # then
    assert holders[0].bound is None


def test_the_kind_of_evidence_for_a_line_is_told() -> None:
    seen, _ = hunt_in(LEAKS["kept_outputs"].make())
    read, _ = hunt_in(LEAKS["unbounded_cache"].make())

    assert seen[0].known_by is LineSource.SEEN
    assert read[0].known_by is LineSource.READ


def test_too_few_looks_say_so() -> None:
    holders, notes = hunt_in(LEAKS["kept_outputs"].make(), looks=(3, 6))

    assert holders == ()
    assert "three observations" in notes[0]


def test_a_debugger_is_left_alone() -> None:
    # given a loop under a debugger
    step = LEAKS["kept_outputs"].make()
    hunt = RetainerSearch()
    frame = sys._getframe()
    before = sys.gettrace()
    for i in range(21):
        step(i)
        if i % 8 == 4:
            hunt.look(i, frame)

    def debugger(frame: Any, event: str, arg: object) -> Any:
        return debugger

    sys.settrace(debugger)

    # when a hunt would like to trace
    try:
        traces = hunt.trace(frame)
        active = sys.gettrace()
        hunt.untrace(frame)
        holders, notes = hunt.result(frame)
    finally:
        sys.settrace(before)
    hunt.close()

    # then it does not, and reads the line
    assert not traces
    assert active is debugger
    assert holders[0].known_by is LineSource.READ
    assert "# grows" in holders[0].lines[0].text
    assert "debugger" in notes[0]


def storages() -> int:
    return len({one.untyped_storage().data_ptr() for one in gc.get_objects() if type(one) is torch.Tensor})


def _stream() -> Iterator[torch.Tensor]:
    while True:
        batch = torch.randn(64)
        yield batch


def test_nothing_is_kept_alive() -> None:
    # given a function whose variables come and go, and a generator with a variable of its own
    hunt = RetainerSearch()
    kept: list[torch.Tensor] = []
    stream = _stream()

    def train() -> list[int]:
        frame = sys._getframe()
        left: list[int] = []
        for i in range(LOOKS[-1] + 4):
            batch = next(stream)
            loss = batch * 2
            gone = (weakref.ref(batch), weakref.ref(loss))
            kept.append(torch.zeros(4))
            if i in LOOKS:
                hunt.look(i, frame)
            if i == LOOKS[-1]:
                assert hunt.trace(frame)
            if i == LOOKS[-1] + 2:
                hunt.untrace(frame)
                hunt.result(frame)
            del batch, loss
            next(stream)
            # when a step is over
            left.append(sum(one() is not None for one in gone) if not LOOKS[-1] <= i < LOOKS[-1] + 2 else 0)
        return left

    # then its variables are gone at once
    assert sum(train()) == 0
    hunt.close()


def test_a_container_that_is_given_up_under_watch_is_let_go() -> None:
    # given a list that is watched
    hunt = RetainerSearch()
    alive = []

    def train() -> None:
        frame = sys._getframe()
        kept: list[torch.Tensor] = []
        for i in range(LOOKS[-1] + 1):
            kept.append(torch.zeros(4))
            if i in LOOKS:
                hunt.look(i, frame)
        one = weakref.ref(kept[0])
        assert hunt.trace(frame)
        # when the loop gives it up
        kept = []
        kept.append(tensor())
        kept.append(tensor())
        alive.append(one() is not None)
        hunt.untrace(frame)

    train()
    holders, _ = hunt.result(sys._getframe())
    hunt.close()

    # then its elements are freed while the watch is still on, and it is no holder
    assert alive == [False]
    assert [holder for holder in holders if "'kept'" in holder.name] == []


@pytest.mark.usefixtures("no_collector")
def test_a_hunt_leaves_no_garbage() -> None:
    step = LEAKS["losses_with_graphs"].make()
    hunt_in(step)
    gc.collect()

    hunt_in(step)

    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    left = [one for one in gc.garbage if type(one).__module__.startswith("tbmem") or type(one) is torch.Tensor]
    gc.garbage.clear()
    assert left == []


def test_the_collector_stays_as_it_was() -> None:
    hunt = RetainerSearch()
    gc.disable()
    try:
        hunt.look(1, sys._getframe())
        assert not gc.isenabled()
    finally:
        gc.enable()
    hunt.look(2, sys._getframe())
    assert gc.isenabled()
    hunt.close()


def test_frames_and_trace_functions_are_left_as_they_were() -> None:
    before = sys.gettrace(), threading.gettrace()

    hunt_in(LEAKS["kept_outputs"].make())

    frame: Any = sys._getframe()
    while frame is not None:
        assert frame.f_trace is None or sys.gettrace() is not None
        frame = frame.f_back
    assert (sys.gettrace(), threading.gettrace()) == before


class Hostile:
    """Everything that Python would ask it fails."""

    def __len__(self) -> int:
        raise AssertionError("len")

    def __eq__(self, other: object) -> bool:
        raise AssertionError("eq")

    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"getattr {name}")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"getattribute {name}")

    def __sizeof__(self) -> int:
        raise AssertionError("sizeof")

    def __iter__(self) -> Any:
        raise AssertionError("iter")

    def __bool__(self) -> bool:
        raise AssertionError("bool")

    def __repr__(self) -> str:
        raise AssertionError("repr")


class HostileList(list[Any]):
    __len__ = Hostile.__len__  # type: ignore[assignment]
    __iter__ = Hostile.__iter__
    __getitem__ = Hostile.__eq__  # type: ignore[assignment]
    __eq__ = Hostile.__eq__
    __hash__ = None  # type: ignore[assignment]
    __sizeof__ = Hostile.__sizeof__
    __bool__ = Hostile.__bool__


def test_nobodys_methods_are_called() -> None:
    keep = HostileList()
    table: dict[Any, Any] = {}

    def step(i: int) -> None:
        list.append(keep, Hostile())
        table[Hostile()] = Hostile()

    holders, _ = hunt_in(step)

    assert {holder.kind for holder in holders} >= {HolderKind.LIST, HolderKind.DICT}


def test_threads_may_change_everything_meanwhile() -> None:
    # given threads that add and take away as fast as they can
    stop = threading.Event()
    table: dict[int, int] = {}
    items: list[int] = []

    def stir() -> None:
        i = 0
        while not stop.is_set():
            i += 1
            table[i] = i
            items.append(i)
            if i % 1000 == 0:
                table.clear()
                items.clear()

    threads = [threading.Thread(target=stir) for _ in range(2)]
    for thread in threads:
        thread.start()

    # when a hunt goes on
    try:
        holders, _ = hunt_in(LEAKS["kept_outputs"].make())
    finally:
        stop.set()
        for thread in threads:
            thread.join()

    # then it finds what it should
    assert any(holder.name == LEAKS["kept_outputs"].name for holder in holders)


def test_a_line_of_another_thread_is_read() -> None:
    # given a list that another thread fills
    shared: list[torch.Tensor] = []
    go, done, stop = threading.Event(), threading.Event(), threading.Event()

    def fill() -> None:
        while True:
            go.wait()
            go.clear()
            if stop.is_set():
                return
            shared.append(torch.zeros(1000))
            done.set()

    thread = threading.Thread(target=fill)
    thread.start()

    def step(i: int) -> None:
        done.clear()
        go.set()
        done.wait()

    # when it is hunted in
    holders, _ = hunt_in(step)
    stop.set()
    go.set()
    thread.join()

    # then the line is the one that adds
    assert "shared.append" in holders[0].lines[0].text


def test_a_task_that_waits_weighs_what_it_works_on() -> None:
    # given a task a step, each of which waits for what never comes
    ready, tasks = asyncio.Event(), asyncio.new_event_loop()

    async def upload(output: torch.Tensor) -> None:
        await ready.wait()
        output.zero_()

    async def train() -> None:
        asyncio.get_running_loop().create_task(upload(tensor()))
        await asyncio.sleep(0)

    # when
    try:
        holders, _ = hunt_in(lambda i: tasks.run_until_complete(train()))
    finally:
        ready.set()
        tasks.run_until_complete(asyncio.sleep(0.01))
        tasks.close()

    # then what holds the tasks, in C, is the holder of their tensors
    assert holders[0].name.startswith("deque ready._waiters")
    assert holders[0].contents is Contents.TENSORS
    assert 4096 <= holders[0].bytes_per_step <= 9000


def test_threads_that_wait_are_told_with_the_line_that_starts_them() -> None:
    # given a thread a step, each with a batch in hand; the interpreter's own table is among what is looked at
    gc.unfreeze()
    done = threading.Event()
    threads: list[weakref.ref[threading.Thread]] = []

    class Watchdog(threading.Thread):
        pass

    def watch(batch: torch.Tensor) -> None:
        done.wait()

    def step(i: int) -> None:
        thread = Watchdog(target=watch, args=(tensor(),))
        threads.append(weakref.ref(thread))
        thread.start()

    # when
    try:
        holders, _ = hunt_in(step)
    finally:
        done.set()
        for known in threads:
            thread = known()
            if thread is not None:
                thread.join()
        gc.freeze()

    # then the interpreter's table of threads holds them; the user's line is named
    assert holders[0].name == "module-level dict '_active' in threading.py"
    assert 4096 <= holders[0].bytes_per_step <= 9000
    assert holders[0].lines[0].text == "thread = Watchdog(target=watch, args=(tensor(),))"


def test_losses_stay_the_same_bit_for_bit() -> None:
    def run(hunted: bool) -> list[float]:
        torch.manual_seed(0)
        losses = []
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(model.parameters(), 0.1)
        kept = []

        def step(i: int) -> None:
            opt.zero_grad()
            loss = model(torch.randn(4, 8)).pow(2).mean()
            loss.backward()
            opt.step()
            kept.append(loss)
            losses.append(loss.item())

        if hunted:
            hunt_in(step)
        else:
            for i in range(LOOKS[-1] + 2 * WATCHED):
                step(i)
        return losses

    assert run(True) == run(False)


def test_hooks_that_bring_saved_tensors_back_are_not_run() -> None:
    # given graphs whose saved tensors were packed by the user's hooks
    unpacked = []
    losses: list[torch.Tensor] = []
    weight = torch.randn(64, 64, requires_grad=True)

    def step(i: int) -> None:
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), unpacked.append):
            losses.append((torch.randn(8, 64) @ weight).tanh().sum())

    # when they are weighed
    holders, _ = hunt_in(step)

    # then nothing was brought back, and what is packed counts
    assert unpacked == []
    assert holders[0].contents is Contents.GRAPHS
    assert holders[0].bytes_per_element > 8 * 64 * 4


@pytest.mark.slow
def test_the_compiler_has_nothing_more_to_do() -> None:
    # given a compiled model
    counters = pytest.importorskip("torch._dynamo.utils").counters
    compiled: list[Any] = []

    def backend(module: Any, inputs: Any) -> Any:
        compiled.append(module)
        return module.forward

    model = torch.compile(torch.nn.Linear(8, 8), backend=backend)
    losses: list[torch.Tensor] = []
    frames: list[int] = []

    def step(i: int) -> None:
        losses.append(model(torch.randn(4, 8)).mean())
        frames.append(counters["frames"]["total"])

    # when it is hunted in
    holders, _ = hunt_in(step)

    # then nothing is compiled but the model
    assert len(compiled) == 1
    assert frames[-1] == frames[0]
    assert "losses.append" in holders[0].lines[0].text


def test_garbage_says_whether_anybody_collects_it(no_collector: None) -> None:
    _, notes = hunt_in(LEAKS["circles_without_a_collector"].make())

    assert notes == ("Knot objects are circles; Python's collector is off: nothing frees them.",)


def test_a_hunt_inside_of_no_function() -> None:
    hunt = RetainerSearch()
    for step in range(3):
        hunt.look(step, None)
    hunt.trace(None)
    hunt.untrace()
    hunt.result(None)
    hunt.close()
    hunt.close()
