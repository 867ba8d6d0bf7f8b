"""Reads the event tree of torch's profiler: what was allocated and freed, and on which lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._C._profiler import RecordScope, _EventType

from tbmem.model.trace_additions import TimedLines, TraceAdditions
from tbmem.sources.survivors.allocation_sites import Birth, Frame, OperatorCall, Place
from tbmem.sources.survivors.frame_lines import UserLines

_MEMORY = "[memory]"
_NODE = "autograd::engine::evaluate_function: "


class _Branch:
    """A node of the tree that has children, and its way to the root."""

    __slots__ = ("children", "line", "node", "place", "up")

    def __init__(self, node: Any, up: _Branch | None, children: Sequence[Any] = ()) -> None:
        self.node = node
        self.up = up
        self.children = children
        """In order of time; torch makes a new list of them each time it is asked."""
        self.place: Place | None = None
        self.line = -1
        """Of the operator, where Python calls it without a function; -1 if nobody has asked yet."""

    @property
    def is_call(self) -> bool:
        """Whether Python calls a function here."""
        return bool(self.node.tag == _EventType.PyCall or self.node.tag == _EventType.PyCCall)


@dataclass(slots=True)
class StepEvents:
    """Allocations and frees of one step."""

    births: dict[int, Birth] = field(default_factory=dict)
    """Allocated in the step and alive at its end, by address."""
    freed: list[int] = field(default_factory=list)
    """Addresses allocated before the step and freed, or used again, in it."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of every allocation that was made and freed in it."""

    @classmethod
    def read(cls, roots: Sequence[Any], code: UserLines) -> StepEvents:
        """Read a step."""
        events = cls()
        alive: dict[int, tuple[int, Any, _Branch | None]] = {}
        for node, branch in _memory_events(roots):
            memory = node.extra_fields
            address, size = memory.ptr, memory.alloc_size
            if memory.device.type != "cpu":
                continue
            known = alive.pop(address, None)
            if known is None:
                events.freed.append(address)
            else:
                events.sizes.append(known[0])
            if size > 0:
                alive[address] = size, node, branch
        places = _Places(code)
        for address, (size, node, branch) in alive.items():
            events.births[address] = Birth(size, places.of(_operator_after(node, branch)))
        return events


def _memory_events(roots: Sequence[Any]) -> Iterable[tuple[Any, _Branch | None]]:
    """Allocations and frees in the order of time, each with the branch it hangs on."""
    found: list[tuple[int, Any, _Branch | None]] = []
    waiting: list[tuple[Any, _Branch | None]] = [(root, None) for root in reversed(roots)]
    while waiting:
        node, up = waiting.pop()
        children = node.children
        if children:
            branch = _Branch(node, up, children)
            waiting.extend([(child, branch) for child in reversed(children)])
        elif node.name == _MEMORY:
            found.append((node.start_time_ns, node, up))
    found.sort(key=lambda event: event[0])  # several threads; stable, so one thread's events keep their order
    return [(node, branch) for _, node, branch in found]


def _operator_after(memory: Any, branch: _Branch | None) -> _Branch | None:
    """The branch of an allocation; where Python itself made it (the 2 of ``a * 2``), that of the operator it is for."""
    if branch is None or branch.node.tag != _EventType.PyCall:
        return branch
    children = branch.children
    later = (children[at] for at in range(_after(children, memory.start_time_ns), len(children)))
    following = next((node for node in later if node.name != _MEMORY), None)
    is_operator = following is not None and following.tag == _EventType.TorchOp
    return _Branch(following, branch) if is_operator else branch


def _after(children: Sequence[Any], ns: int) -> int:
    """Place of the first child that began after a moment."""
    return bisect_right(children, ns, key=lambda node: node.start_time_ns)


class _Places:
    """Finds the place of a branch, each branch once."""

    def __init__(self, code: UserLines) -> None:
        self._code = code

    def of(self, branch: _Branch | None) -> Place:
        """The user's lines above a branch, the operator, and whether autograd runs it."""
        path: list[_Branch] = []
        while branch is not None and branch.place is None:
            path.append(branch)
            branch = branch.up
        place = branch.place if branch is not None and branch.place is not None else Place()
        for below in reversed(path):
            place = below.place = self._below(place, below)
        return place

    def _below(self, place: Place, branch: _Branch) -> Place:
        node = branch.node
        if node.tag == _EventType.TorchOp:
            return self._in_operator(place, branch)
        if node.tag == _EventType.PyCall or node.tag == _EventType.PyCCall:
            return self._in_call(place, node)
        return place

    def _in_operator(self, place: Place, branch: _Branch) -> Place:
        node = branch.node
        scope = node.extra_fields.scope
        if scope == RecordScope.USER_SCOPE:
            return place
        name = node.name.removeprefix(_NODE)
        in_backward = place.in_backward or name != node.name or scope == RecordScope.BACKWARD_FUNCTION
        if place.operator:
            return Place(place.frames, place.operator, in_backward)
        own = self._own_frame(branch, name)
        return Place((own, *place.frames) if own else place.frames, name, in_backward)

    def _in_call(self, place: Place, node: Any) -> Place:
        """A call ends the search for the operator: what a custom function calls counts, not the function."""
        caller = node.extra_fields.caller
        file = self._code.file(caller.file_name)
        is_root = node.parent is None and node.tag == _EventType.PyCall  # nobody called it: its caller is itself
        if is_root or not file:
            return Place(place.frames, "", place.in_backward)
        frame = Frame(file, caller.line_number, caller.function_name)
        # a function in C has no frame of its own: what it calls has the same caller as itself
        frames = place.frames if place.frames[:1] == (frame,) else (frame, *place.frames)
        return Place(frames, "", place.in_backward)

    def _own_frame(self, branch: _Branch, operator: str) -> Frame | None:
        """The frame that runs an operator which it has not called by name (``a * b``), if it is the user's."""
        up = branch.up
        if up is None or up.node.tag != _EventType.PyCall:
            return None
        here = up.node.extra_fields.callsite
        file = self._code.file(here.file_name)
        if not file:
            return None
        call = _operator_call(up.children, branch.node, operator, here.line_number)
        return Frame(file, 0, here.function_name, call)

    def line_of_operator(self, branch: _Branch | None) -> int:
        """The line of an operator that the user's own Python calls without a function; 0 if it is not known."""
        while branch is not None and not branch.is_call and branch.up is not None and not branch.up.is_call:
            branch = branch.up
        if branch is None or branch.is_call:
            return 0
        if branch.line < 0:
            frame = self._own_frame(branch, branch.node.name)
            branch.line = self._code.operator_line(frame) if frame is not None else 0
        return branch.line


def _operator_call(siblings: Sequence[Any], node: Any, operator: str, inside: int) -> OperatorCall:
    began = node.start_time_ns
    after, before, nth = 0, 0, 0
    at = _after(siblings, began)
    for place in range(at, len(siblings)):
        if (line := _line_of_call(siblings[place])) is not None:
            after = line
            break
    for place in range(at - 1, -1, -1):
        sibling = siblings[place]
        if sibling.start_time_ns == began:
            continue
        if (line := _line_of_call(sibling)) is not None:
            before = line
            break
        nth += sibling.name == operator
    return OperatorCall(operator, inside, before, after, nth)


def _line_of_call(node: Any) -> int | None:
    """The line on which a function is called; ``None`` for what is no call."""
    is_call = node.tag == _EventType.PyCall or node.tag == _EventType.PyCCall
    return node.extra_fields.caller.line_number if is_call else None


def noted_lines(roots: Sequence[Any], code: UserLines) -> TraceAdditions:
    """The lines that a trace does not tell, of all that allocates."""
    calls: dict[int, int] = {}
    operators: dict[int, int] = {}
    names: set[str] = set()
    seen: set[int] = set()
    places = _Places(code)
    for node, branch in _memory_events(roots):
        if node.extra_fields.alloc_size <= 0:
            continue
        if line := places.line_of_operator(_operator_after(node, branch)):
            operators[node.start_time_ns] = line
        while branch is not None and id(branch) not in seen:
            seen.add(id(branch))
            if branch.is_call:
                fields = branch.node.extra_fields
                names.add(fields.caller.file_name)
                names.update([fields.callsite.file_name] if branch.node.tag == _EventType.PyCall else [])
                if branch.up is not None:
                    calls[branch.node.start_time_ns] = fields.caller.line_number
            branch = branch.up
    files = {name: path for name in sorted(names) if (path := code.path_unless_plain(name))}
    return TraceAdditions(calls=TimedLines.of(calls), operators=TimedLines.of(operators), files=files)
