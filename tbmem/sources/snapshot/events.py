"""Columns of a snapshot's events: the allocator's log of one device."""

from __future__ import annotations

from enum import IntEnum
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from tbmem.model.columns import I8, I32, I64, U64
from tbmem.model.stacks import Names
from tbmem.model.timeline_tables import MarkRows, ReservationKind, ReservationRows
from tbmem.sources.snapshot.plain_values import require_texts
from tbmem.sources.snapshot.segments import Pools
from tbmem.sources.snapshot.stacks import SnapshotStacks

_Number = TypeVar("_Number", np.int64, np.uint64)


class Action(IntEnum):
    """Kind of an event, in the order of ``ReservationKind`` for segments and of ``MarkKind`` from ``OOM`` on."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    OTHER = 9


_CODES = {action.name.lower(): int(action) for action in Action}
_WITH_STACK = np.isin(
    np.arange(len(Action)), [Action.ALLOC, Action.SEGMENT_ALLOC, Action.SEGMENT_MAP, Action.OOM, Action.OTHER]
)
_EMPTY = {"", "N/A", None}
_CONTEXTS = ("user_metadata", "compile_context")
_LONGEST_CONTEXT = 1000  # characters; each pair of texts makes one


class Events(NamedTuple):
    """Columns with one entry per event of a device, in order of time."""

    action: I8
    address: U64
    bytes: I64
    stream: I64
    ns: I64  # Unix time; -1 where unknown
    stack: I32  # -1 where unknown, and for frees
    forward_stack: I32  # -1 where unknown
    pool: I32  # -1 where unknown
    context: I32

    def __len__(self) -> int:
        return len(self.action)

    def at(self, events: I64, *names: str) -> dict[str, Any]:
        """Some of the columns at some events."""
        return {name: getattr(self, name)[events] for name in names}


def read_events(trace: list[dict[str, Any]], stacks: SnapshotStacks, pools: Pools, contexts: Names) -> Events:
    """Columns of one device's log; the tables of stacks, pools and contexts are extended."""
    action = _actions(trace)
    time = _column(trace, "time_us", -1, np.int64)
    return Events(
        action=action,
        address=_column(trace, "addr", 0, np.uint64),
        bytes=_column(trace, "size", 0, np.int64),
        stream=_column(trace, "stream", 0, np.int64),
        ns=np.where(time < 0, -1, time * 1000),
        stack=_stacks(trace, action, stacks),
        forward_stack=_forward_stacks(trace, action, stacks),
        pool=_pools(trace, pools),
        context=_contexts(trace, action, contexts),
    )


def _actions(trace: list[dict[str, Any]]) -> I8:
    try:
        return np.fromiter(map(_CODES.__getitem__, map(itemgetter("action"), trace)), np.int8, len(trace))
    except KeyError:
        names = [event["action"] for event in trace]
        require_texts(names)
        return np.array([_CODES.get(name, Action.OTHER) for name in names], np.int8)


def _column(trace: list[dict[str, Any]], key: str, default: int, dtype: type[_Number]) -> NDArray[_Number]:
    try:
        return np.fromiter(map(itemgetter(key), trace), dtype, len(trace))
    except KeyError:
        # some kinds of events and old layouts lack the key
        return np.fromiter((event.get(key, default) for event in trace), dtype, len(trace))


def _stacks(trace: list[dict[str, Any]], action: I8, stacks: SnapshotStacks) -> I32:
    numbers = np.full(len(trace), -1, np.int32)
    with_stack = _WITH_STACK[action]
    numbers[with_stack] = stacks.numbers(event.get("frames") for event in compress(trace, with_stack.tolist()))
    return numbers


def _forward_stacks(trace: list[dict[str, Any]], action: I8, stacks: SnapshotStacks) -> I32:
    """Stacks of the forward pass, as lines of a traceback, which torch 2.10 and later have in its anomaly mode."""
    numbers = np.full(len(trace), -1, np.int32)
    for event in np.flatnonzero(action == Action.ALLOC).tolist():
        if lines := trace[event].get("forward_frames"):
            numbers[event] = stacks.of_traceback(lines)
    return numbers


def _pools(trace: list[dict[str, Any]], pools: Pools) -> I32:
    """Newer torch writes a pool in each event, older in none."""
    if not trace or "pool_id" not in trace[0]:
        return np.full(len(trace), -1, np.int32)
    return np.array([pools.of(event.get("pool_id")) for event in trace], np.int32)


def _contexts(trace: list[dict[str, Any]], action: I8, contexts: Names) -> I32:
    """User metadata and torch.compile's context of allocations, which torch 2.9 and later write, mostly empty."""
    numbers = np.full(len(trace), -1, np.int32)
    is_alloc = action == Action.ALLOC
    allocs = list(compress(trace, is_alloc.tolist()))
    if not any(_has_values(allocs, key) for key in _CONTEXTS):
        return numbers
    values = [tuple(map(event.get, _CONTEXTS)) for event in allocs]
    texts = {words: "; ".join(_shortened(word) for word in words if word not in _EMPTY) for words in set(values)}
    numbers[is_alloc] = [contexts[texts[words]] for words in values]
    return numbers


def _shortened(word: Any) -> str:
    text = str(word)
    return text if len(text) <= _LONGEST_CONTEXT else text[:_LONGEST_CONTEXT] + "…"


def _has_values(events: list[dict[str, Any]], key: str) -> bool:
    words = [event.get(key) or "" for event in events]
    require_texts(words)
    return not set(words) <= _EMPTY


def reservations(events: Events, device: int) -> ReservationRows:
    """Changes of the reserved memory."""
    at = np.flatnonzero((events.action >= Action.SEGMENT_ALLOC) & (events.action <= Action.SEGMENT_UNMAP))
    kind = events.action[at] - Action.SEGMENT_ALLOC
    decreases = (kind == ReservationKind.FREE) | (kind == ReservationKind.UNMAP)
    return ReservationRows.of(
        len(at),
        device=device,
        event=at,
        bytes=np.where(decreases, -events.bytes[at], events.bytes[at]),
        kind=kind,
        **events.at(at, "ns", "address", "stream", "pool", "stack"),
    )


def marks(events: Events, trace: list[dict[str, Any]], device: int) -> MarkRows:
    """Events that move no memory."""
    at = np.flatnonzero(events.action >= Action.OOM)
    return MarkRows.of(
        len(at),
        device=device,
        event=at,
        kind=events.action[at] - Action.OOM,
        device_free_bytes=[trace[event].get("device_free", -1) for event in at.tolist()],
        **events.at(at, "ns", "bytes", "stack"),
    )
