"""Small loops that hold more and more, each with the name that should be found; ``# grows`` marks the line."""

from __future__ import annotations

import collections
import functools
import inspect
import io
import itertools
import logging
import logging.handlers
import queue
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from tbmem.model.evidence import Contents, HolderKind

Step = Callable[[int], Any]


class Expected(NamedTuple):
    """What should be said about a loop."""

    make: Callable[[], Step]
    kind: HolderKind
    name: str
    contents: Contents
    low: int
    """Least bytes per step that are honest."""
    high: int
    line: int


LEAKS: dict[str, Expected] = {}


def leak(kind: HolderKind, name: str, contents: Contents, low: int, high: int) -> Callable[[Any], Any]:
    def note(make: Callable[[], Step]) -> Callable[[], Step]:
        lines, first = inspect.getsourcelines(make)
        inside = [first + i for i, line in enumerate(lines) if "# grows" in line]
        LEAKS[make.__name__] = Expected(make, kind, name, contents, low, high, inside[0] if inside else 0)
        return make

    return note


KIB = 1024
TENSORS, GRAPHS, OBJECTS = Contents.TENSORS, Contents.GRAPHS, Contents.OBJECTS


def tensor(kib: int = 4) -> torch.Tensor:
    return torch.randn(kib * 256)


@leak(HolderKind.LIST, "list 'outputs' in kept_outputs()", TENSORS, 4 * KIB, 5 * KIB)
def kept_outputs() -> Step:
    outputs: list[torch.Tensor] = []

    def step(i: int) -> None:
        outputs.append(tensor())  # grows

    return step


@leak(HolderKind.LIST, "list 'losses' in losses_with_graphs()", GRAPHS, 2 * KIB, 40 * KIB)
def losses_with_graphs() -> Step:
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    losses: list[torch.Tensor] = []

    def step(i: int) -> None:
        losses.append(model(torch.randn(8, 32)).mean())  # grows

    return step


@leak(HolderKind.LIST, "list state['history'] in key_of_a_dict()", TENSORS, 4 * KIB, 5 * KIB)
def key_of_a_dict() -> Step:
    state: dict[str, Any] = {"history": [], "best": 0.0}

    def step(i: int) -> None:
        state["history"].append(tensor())  # grows

    return step


class Tracker:
    def __init__(self) -> None:
        self.values: dict[str, list[torch.Tensor]] = {}

    def log(self, name: str, value: torch.Tensor) -> None:
        self.values.setdefault(name, []).append(value)


@leak(HolderKind.LIST, "Tracker.values['acc']", TENSORS, 4 * KIB, 5 * KIB)
def attribute_of_a_tracker() -> Step:
    tracker = Tracker()
    return lambda i: tracker.log("acc", tensor())


class Registry:
    seen: list[torch.Tensor] = []

    @classmethod
    def note(cls, value: torch.Tensor) -> None:
        cls.seen.append(value)


@leak(HolderKind.LIST, "Registry.seen", TENSORS, 4 * KIB, 5 * KIB)
def class_attribute() -> Step:
    Registry.seen = []
    return lambda i: Registry.note(tensor())


_CACHE: dict[int, torch.Tensor] = {}


def _look_up(key: int) -> torch.Tensor:
    if key not in _CACHE:
        _CACHE[key] = tensor()
    return _CACHE[key]


@leak(HolderKind.DICT, "module-level dict '_CACHE' in leaks.py", TENSORS, 4 * KIB, 5 * KIB)
def module_level_cache() -> Step:
    _CACHE.clear()
    return _look_up


@leak(HolderKind.DICT, "defaultdict 'by_class' in lists_by_class()", TENSORS, 4 * KIB, 6 * KIB)
def lists_by_class() -> Step:
    by_class: dict[int, list[torch.Tensor]] = collections.defaultdict(list)

    def step(i: int) -> None:
        by_class[i * 7919 % 1000].append(tensor())  # grows

    return step


@leak(HolderKind.SET, "set 'kept' in set_of_tensors()", TENSORS, 4 * KIB, 5 * KIB)
def set_of_tensors() -> Step:
    kept: set[torch.Tensor] = set()

    def step(i: int) -> None:
        kept.add(tensor())  # grows

    return step


@leak(HolderKind.DEQUE, "deque 'window' in bounded_window()", TENSORS, 4 * KIB, 5 * KIB)
def bounded_window() -> Step:
    window: collections.deque[torch.Tensor] = collections.deque(maxlen=500)

    def step(i: int) -> None:
        window.append(tensor())  # grows

    return step


@leak(HolderKind.LRU_CACHE, "lru_cache of unbounded_cache.mask_for()", TENSORS, 4 * KIB, 6 * KIB)
def unbounded_cache() -> Step:
    @functools.cache
    def mask_for(n: int) -> torch.Tensor:  # grows
        return tensor()

    return mask_for


def _batches() -> Iterator[torch.Tensor]:
    buffer = []
    while True:
        buffer.append(tensor())
        yield buffer[-1]


@leak(HolderKind.LIST, "list 'buffer' in _batches()", TENSORS, 4 * KIB, 5 * KIB)
def local_of_a_generator() -> Step:
    stream = _batches()
    return lambda i: next(stream)


@leak(HolderKind.LIST, "list opt.param_groups in growing_param_groups()", TENSORS, 300, 8 * KIB)
def growing_param_groups() -> Step:
    opt = torch.optim.SGD([torch.nn.Parameter(tensor())], 1e-3)

    def step(i: int) -> None:
        opt.add_param_group({"params": [torch.nn.Parameter(tensor())]})  # grows

    return step


@leak(HolderKind.HOOKS, "forward hooks of Linear model[0] in hook_in_each_step()", Contents.HOOKS, 100, 8 * KIB)
def hook_in_each_step() -> Step:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4))

    def step(i: int) -> None:
        seen: list[int] = []
        model[0].register_forward_hook(lambda *_: seen.append(1))  # grows

    return step


@leak(HolderKind.LIST, "list 'records' in numpy_arrays()", OBJECTS, 4 * KIB, 5 * KIB)
def numpy_arrays() -> Step:
    records: list[np.ndarray[Any, Any]] = []

    def step(i: int) -> None:
        records.append(np.random.default_rng(i).random(512))  # grows

    return step


@leak(HolderKind.LIST, "list 'rows' in plain_records()", OBJECTS, 250, 900)
def plain_records() -> Step:
    rows: list[dict[str, float]] = []

    def step(i: int) -> None:
        rows.append({"step": i + 1e6, "loss": i * 0.1, "lr": i * 0.2})  # grows

    return step


@leak(HolderKind.TENSOR, "tensor 'history' in joined_tensor()", TENSORS, 4 * KIB, 4 * KIB)
def joined_tensor() -> Step:
    history = torch.zeros(0)

    def step(i: int) -> None:
        nonlocal history
        history = torch.cat([history, tensor()])  # grows

    return step


@leak(HolderKind.LIST, "list 'crops' in views_of_large_storages()", Contents.VIEWS, 64 * KIB, 66 * KIB)
def views_of_large_storages() -> Step:
    crops: list[torch.Tensor] = []

    def step(i: int) -> None:
        crops.append(tensor(64)[:4])  # grows

    return step


@leak(HolderKind.DEQUE, "deque results.queue in queue_that_nobody_reads()", TENSORS, 4 * KIB, 5 * KIB)
def queue_that_nobody_reads() -> Step:
    results: queue.Queue[torch.Tensor] = queue.Queue()

    def step(i: int) -> None:
        results.put(tensor())  # grows

    return step


@leak(HolderKind.LIST, "list 'errors' in retained_exceptions()", TENSORS, 4 * KIB, 9 * KIB)
def retained_exceptions() -> Step:
    errors: list[Exception] = []

    def attempt() -> None:
        batch = tensor()
        raise ValueError(len(batch))

    def step(i: int) -> None:
        try:
            attempt()
        except ValueError as error:
            errors.append(error)  # grows

    return step


@leak(HolderKind.LIST, "list store.kept in thread_local()", TENSORS, 4 * KIB, 5 * KIB)
def thread_local() -> Step:
    store = threading.local()
    store.kept = []

    def step(i: int) -> None:
        store.kept.append(tensor())  # grows

    return step


@dataclass
class Slotted:
    __slots__ = ("items",)
    items: list[torch.Tensor]

    def add(self, one: torch.Tensor) -> None:
        self.items.append(one)


@leak(HolderKind.LIST, "Slotted.items", TENSORS, 4 * KIB, 5 * KIB)
def slots_of_a_dataclass() -> Step:
    one = Slotted([])
    return lambda i: one.add(tensor())


class Pair(NamedTuple):
    names: list[str]
    values: list[torch.Tensor]


@leak(HolderKind.LIST, "Pair.values", TENSORS, 4 * KIB, 5 * KIB)
def field_of_a_named_tuple() -> Step:
    pair = Pair([], [])

    def step(i: int) -> None:
        pair.values.append(tensor())  # grows

    return step


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(16, 16)
        self.acts: list[torch.Tensor] = []
        self.mean = torch.zeros(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.acts.append(x)
        return self.inner(x)


@leak(HolderKind.LIST, "Net.acts", TENSORS, 4 * KIB, 5 * KIB)
def list_in_a_module() -> Step:
    net = torch.nn.Sequential(Net())
    return lambda i: net(torch.randn(64, 16))


def _outer() -> Callable[[torch.Tensor], None]:
    kept: list[torch.Tensor] = []

    def middle() -> Callable[[torch.Tensor], None]:
        def inner(one: torch.Tensor) -> None:
            kept.append(one)

        return inner

    return middle()


@leak(HolderKind.LIST, "list 'kept' in _outer()", TENSORS, 4 * KIB, 5 * KIB)
def closure_in_a_closure() -> Step:
    keep = _outer()
    return lambda i: keep(tensor())


@leak(HolderKind.LIST, "list logger.handlers[0].buffer in buffer_of_a_handler()", OBJECTS, 300, 5 * KIB)
def buffer_of_a_handler() -> Step:
    handler = logging.handlers.MemoryHandler(100_000)
    logger = logging.Logger("leaks")
    logger.addHandler(handler)

    def step(i: int) -> None:
        logger.warning("loss %f", i * 0.1)  # grows

    return step


@leak(HolderKind.DICT, "WeakKeyDictionary 'notes' in weak_keys()", TENSORS, 4 * KIB, 6 * KIB)
def weak_keys() -> Step:
    notes: weakref.WeakKeyDictionary[Any, torch.Tensor] = weakref.WeakKeyDictionary()
    owners = [Owner() for _ in range(1000)]

    def step(i: int) -> None:
        notes[owners[i]] = tensor()  # grows

    return step


class Owner:
    pass


@leak(HolderKind.GRAPH, "tensor 'total' in running_total()", GRAPHS, 2 * KIB, 30 * KIB)
def running_total() -> Step:
    model = torch.nn.Linear(64, 64)
    total = torch.zeros(())

    def step(i: int) -> None:
        nonlocal total
        total = total + model(torch.randn(16, 64)).pow(2).mean()  # grows

    return step


@leak(HolderKind.GRAPH, "tensor hidden[0] in state_of_an_lstm()", GRAPHS, 2 * KIB, 60 * KIB)
def state_of_an_lstm() -> Step:
    cell = torch.nn.LSTMCell(16, 32)
    hidden = (torch.zeros(4, 32), torch.zeros(4, 32))

    def step(i: int) -> None:
        nonlocal hidden
        hidden = cell(torch.randn(4, 16), hidden)  # grows

    return step


class Center(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = torch.nn.Linear(8, 8)
        self.register_buffer("center", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.lin(x)
        self.center = 0.9 * self.center + 0.1 * y.mean(0)
        return y - self.center


@leak(HolderKind.GRAPH, "Center.center", GRAPHS, 1 * KIB, 30 * KIB)
def buffer_with_a_graph() -> Step:
    model = Center()
    return lambda i: model(torch.randn(4, 8))


@leak(HolderKind.ITERATOR, "tee '", TENSORS, 4 * KIB, 5 * KIB)
def forgotten_tee() -> Step:
    fast, slow = itertools.tee(tensor() for _ in range(10_000))  # grows
    return lambda i: (next(fast), slow)[0]


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        result = x * 2
        ctx.result = result
        return result

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad * 2


@leak(HolderKind.CONTEXT, "ctx.result of Doubled", GRAPHS, 16 * KIB, 20 * KIB)
def output_on_the_context() -> Step:
    weight = torch.randn(4096, requires_grad=True)
    return lambda i: Doubled.apply(weight).sum().backward()


@leak(HolderKind.LIST, "list 'kept' in replaced_list()", TENSORS, 4 * KIB, 5 * KIB)
def replaced_list() -> Step:
    kept: list[torch.Tensor] = []

    def step(i: int) -> None:
        nonlocal kept
        kept = kept + [tensor()]  # grows

    return step


@leak(HolderKind.DICT, "dict 'scores' in numbers_by_step()", OBJECTS, 32, 300)
def numbers_by_step() -> Step:
    scores: dict[int, float] = {}

    def step(i: int) -> None:
        scores[i + 1000] = i * 0.1  # grows

    return step


@leak(HolderKind.OBJECTS, "bytearray 'log' in text_buffer()", OBJECTS, 900, 1100)
def text_buffer() -> Step:
    log = bytearray(b"x" * 4000)

    def step(i: int) -> None:
        log.extend(b"y" * 1000)  # grows

    return step


@dataclass
class Trial:
    number: int
    scores: list[torch.Tensor] = field(default_factory=list)


@leak(HolderKind.LIST, "list 'trials' in several_in_a_step()", TENSORS, 12 * KIB, 16 * KIB)
def several_in_a_step() -> Step:
    trials: list[Trial] = []

    def step(i: int) -> None:
        for k in range(3):
            trials.append(Trial(k, [tensor()]))  # noqa: PERF401  # grows

    return step


@leak(HolderKind.LIST, "list 'checkpoints' in one_every_few_steps()", TENSORS, 1 * KIB, 2 * KIB)
def one_every_few_steps() -> Step:
    checkpoints: list[torch.Tensor] = []

    def step(i: int) -> None:
        if i % 4 == 0:
            checkpoints.append(tensor())  # grows

    return step


def _collect(one: torch.Tensor, into: list[torch.Tensor] = []) -> None:  # noqa: B006
    into.append(one)


@leak(HolderKind.LIST, "list 'into' in a default of _collect()", TENSORS, 4 * KIB, 5 * KIB)
def default_value() -> Step:
    return lambda i: _collect(tensor())


@leak(HolderKind.OBJECTS, "Link objects", TENSORS, 4 * KIB, 6 * KIB)
def linked_list() -> Step:
    head: Link | None = None

    def step(i: int) -> None:
        nonlocal head
        head = Link(tensor(), head)  # grows

    return step


class Link:
    def __init__(self, value: torch.Tensor, following: Link | None) -> None:
        self.value = value
        self.following = following


class Knot:
    def __init__(self) -> None:
        self.value = tensor()
        self.me = self  # grows


@leak(HolderKind.GARBAGE, "Knot objects", TENSORS, 4 * KIB, 6 * KIB)
def circles_without_a_collector() -> Step:
    return lambda i: Knot()


@leak(HolderKind.DICT, "dict 'by_label' in lists_that_grow_seldom(), in its elements", TENSORS, 4 * KIB, 5 * KIB)
def lists_that_grow_seldom() -> Step:
    by_label: dict[int, list[torch.Tensor]] = {label: [] for label in range(40)}

    def step(i: int) -> None:
        by_label[i * 7919 % 40].append(tensor())  # grows

    return step


@leak(HolderKind.DICT, "dict 'history' in numbers_of_many_layers(), in its elements", OBJECTS, 900, 1400)
def numbers_of_many_layers() -> Step:
    history: dict[str, list[float]] = {f"layer {i}": [] for i in range(32)}

    def step(i: int) -> None:
        for numbers in history.values():
            numbers.append(i / 7)  # grows

    return step


@leak(HolderKind.OBJECTS, "BytesIO 'buffer' in saved_into_one_buffer()", OBJECTS, 5 * KIB, 40 * KIB)
def saved_into_one_buffer() -> Step:
    buffer, state = io.BytesIO(), tensor(8)

    def step(i: int) -> None:
        torch.save(state, buffer)  # grows

    return step
