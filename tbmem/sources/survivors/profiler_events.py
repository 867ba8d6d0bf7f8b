"""Reads the event tree of torch's profiler: what was allocated and freed, and on which lines."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch._C._profiler import RecordScope, _EventType

from tbmem.model.trace_additions import TimedLines, TraceAdditions
from tbmem.sources.survivors.frame_lines import Frame, OperatorCall, UserLines
from tbmem.sources.survivors.tracker import AllocationSite, Survivor

_MEMORY = "[memory]"
_CALLS = (_EventType.PyCall.value, _EventType.PyCCall.value)  # plain numbers: comparing torch's own is slow
_NODE = "autograd::engine::evaluate_function: "


@dataclass(slots=True, eq=False)
class _TreeNode:
    """A node of the tree that has children, and its way to the root."""

    node: Any
    up: _TreeNode | None
    children: Sequence[Any] = ()  # in order of time; torch makes a new list of them each time it is read
    site: AllocationSite | None = None
    line: int = -1  # of the operator, where Python calls it without a function; -1 if it is not known yet
    is_noted: bool = False


def _is_call(node: Any) -> bool:
    return node.tag.value in _CALLS


@dataclass(slots=True)
class StepEvents:
    """Allocations and frees of one step."""

    survivors: dict[int, Survivor] = field(default_factory=dict)  # alive at the step's end, by address
    freed: list[int] = field(default_factory=list)  # allocated before the step, freed or used again in it
    sizes: list[int] = field(default_factory=list)  # bytes of every allocation that was made and freed in it

    @classmethod
    def read(cls, roots: Sequence[Any], code: UserLines) -> StepEvents:
        """Read a step."""
        events = cls()
        alive: dict[int, tuple[int, Any, _TreeNode | None]] = {}
        # by time, as there are several threads; stable, so that one thread's events keep their order
        for node, branch in sorted(_memory_events(roots), key=lambda event: event[0].start_time_ns):
            memory = node.extra_fields
            if memory.device.type != "cpu":
                continue
            known = alive.pop(memory.ptr, None)
            if known is None:
                events.freed.append(memory.ptr)
            else:
                events.sizes.append(known[0])
            if memory.alloc_size > 0:
                alive[memory.ptr] = memory.alloc_size, node, branch
        finder = _SiteFinder(code)
        for address, (size, node, branch) in alive.items():
            events.survivors[address] = Survivor(size, finder.of(_operator_after(node, branch)))
        return events


def _memory_events(roots: Sequence[Any]) -> Iterator[tuple[Any, _TreeNode | None]]:
    """Allocations and frees in the order of the tree, each with the branch it belongs to."""
    levels, up = [iter(roots)], None
    while levels:
        node = next(levels[-1], None)
        if node is None:
            levels.pop()
            up = up.up if up is not None else None
            continue
        children = node.children
        if children:
            up = _TreeNode(node, up, children)
            levels.append(iter(children))
        elif node.name == _MEMORY:
            yield node, up


def _operator_after(memory: Any, branch: _TreeNode | None) -> _TreeNode | None:
    """The branch of an allocation; where Python itself made it (the 2 of ``a * 2``), that of the operator it is for."""
    if branch is None or branch.node.tag != _EventType.PyCall:
        return branch
    children = branch.children
    later = (children[at] for at in range(_after(children, memory.start_time_ns), len(children)))
    following = next((node for node in later if node.name != _MEMORY), None)
    is_operator = following is not None and following.tag == _EventType.TorchOp
    return _TreeNode(following, branch) if is_operator else branch


def _after(children: Sequence[Any], ns: int) -> int:
    """Index of the first child that began after a moment."""
    return bisect_right(children, ns, key=lambda node: node.start_time_ns)


class _SiteFinder:
    """Finds the allocation site of a branch, each branch once."""

    def __init__(self, code: UserLines) -> None:
        self._lines = code

    def of(self, branch: _TreeNode | None) -> AllocationSite:
        """The user's lines above a branch, the operator, and whether autograd runs it."""
        path: list[_TreeNode] = []
        while branch is not None and branch.site is None:
            path.append(branch)
            branch = branch.up
        site = branch.site if branch is not None and branch.site is not None else AllocationSite()
        for below in reversed(path):
            if _is_call(below.node):
                site = self._in_call(site, below.node)
            elif below.node.tag == _EventType.TorchOp:
                site = self._in_operator(site, below)
            below.site = site
        return site

    def _in_operator(self, site: AllocationSite, branch: _TreeNode) -> AllocationSite:
        node = branch.node
        scope = node.extra_fields.scope
        if scope == RecordScope.USER_SCOPE:
            return site
        name = node.name.removeprefix(_NODE)
        in_backward = site.in_backward or name != node.name or scope == RecordScope.BACKWARD_FUNCTION
        if site.operator:
            return AllocationSite(site.frames, site.operator, in_backward)
        frame = self._own_frame(branch, name)
        return AllocationSite((frame, *site.frames) if frame else site.frames, name, in_backward)

    def _in_call(self, site: AllocationSite, node: Any) -> AllocationSite:
        """A call ends the search for the operator: what a custom function calls counts, not the function."""
        caller = node.extra_fields.caller
        file = self._lines.file(caller.file_name)
        is_root = node.parent is None and node.tag == _EventType.PyCall  # nobody called it: its caller is itself
        if is_root or not file:
            return AllocationSite(site.frames, "", site.in_backward)
        frame = Frame(file, caller.line_number, caller.function_name)
        # a function in C has no frame of its own: what it calls has the same caller as itself
        frames = site.frames if site.frames[:1] == (frame,) else (frame, *site.frames)
        return AllocationSite(frames, "", site.in_backward)

    def _own_frame(self, branch: _TreeNode, operator: str) -> Frame | None:
        """The frame that runs an operator which it has not called by name (``a * b``), if it is the user's."""
        up = branch.up
        if up is None or up.node.tag != _EventType.PyCall:
            return None
        callsite = up.node.extra_fields.callsite
        file = self._lines.file(callsite.file_name)
        if not file:
            return None
        call = _operator_call(up.children, branch.node, operator, callsite.line_number)
        return Frame(file, 0, callsite.function_name, call)

    def line_of_operator(self, branch: _TreeNode | None) -> int:
        """The line of an operator that the user's own Python calls without a function; 0 if it is not known."""
        while branch is not None and not _is_call(branch.node) and branch.up and not _is_call(branch.up.node):
            branch = branch.up
        if branch is None or _is_call(branch.node):
            return 0
        if branch.line < 0:
            frame = self._own_frame(branch, branch.node.name)
            branch.line = self._lines.operator_line(frame) if frame is not None else 0
        return branch.line


def _operator_call(siblings: Sequence[Any], node: Any, operator: str, inside: int) -> OperatorCall:
    start = node.start_time_ns
    at = _after(siblings, start)
    following = (siblings[i] for i in range(at, len(siblings)))
    after = next((sibling.extra_fields.caller.line_number for sibling in following if _is_call(sibling)), 0)
    nth = 0
    for i in range(at - 1, -1, -1):
        if siblings[i].start_time_ns == start:
            continue
        if _is_call(siblings[i]):
            return OperatorCall(operator, inside, siblings[i].extra_fields.caller.line_number, after, nth)
        nth += siblings[i].name == operator
    return OperatorCall(operator, inside, 0, after, nth)


def noted_lines(roots: Sequence[Any], code: UserLines) -> TraceAdditions:
    """The lines of allocations that a trace does not contain."""
    calls: dict[int, int] = {}
    operators: dict[int, int] = {}
    names: set[str] = set()
    finder = _SiteFinder(code)
    for node, branch in _memory_events(roots):
        if node.extra_fields.alloc_size <= 0:
            continue
        if line := finder.line_of_operator(_operator_after(node, branch)):
            operators[node.start_time_ns] = line
        while branch is not None and not branch.is_noted:
            branch.is_noted = True
            if _is_call(branch.node):
                fields = branch.node.extra_fields
                names.add(fields.caller.file_name)
                if branch.node.tag == _EventType.PyCall:
                    names.add(fields.callsite.file_name)
                if branch.up is not None:
                    calls[branch.node.start_time_ns] = fields.caller.line_number
            branch = branch.up
    files = {name: path for name in sorted(names) if (path := code.path_unless_plain(name))}
    return TraceAdditions(calls=TimedLines.of(calls), operators=TimedLines.of(operators), files=files)
