"""Autograd graphs: their nodes, which are numbered in the order of their creation, and what these keep alive."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from tbmem.interruption import raise_interruption
from tbmem.sources.program import introspection as plain

_LEAF = 1 << 62
"""Nodes that accumulate gradients have the largest number there is: they are older than everything."""


def number_of(node: Any) -> int:
    """Running number of a node in its thread; -1 where it has none."""
    try:
        return int(node._sequence_nr())
    except Exception as error:
        raise_interruption(error)
        return -1


def parents(node: Any) -> list[Any]:
    """The nodes whose results a node has used."""
    try:
        return [parent for parent, _ in node.next_functions if parent is not None]
    except Exception as error:
        raise_interruption(error)
        return []


def reaches(node: Any, number: int, limit: int = 5000) -> bool:
    """Whether a graph, given by its newest node, goes back to the node with a given number.

    At most ``limit`` nodes are followed, the oldest first, so that a long chain is found quickly.
    """
    heap = [(number_of(node), 0, node)]
    seen = {node}
    while heap and limit > 0:
        position, _, current = heapq.heappop(heap)
        if position == number:
            return True
        limit -= 1
        for parent in parents(current):
            position = number_of(parent)
            if number <= position < _LEAF and parent not in seen:
                seen.add(parent)
                heapq.heappush(heap, (position, len(seen), parent))
    return False


class Graph:
    """Nodes of one or several graphs, each counted once."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.nodes: set[Any] = set()
        self.complete = True
        self._limit = limit
        self._deadline = time.thread_time() + seconds

    def add(self, root: Any, newer_than: int = -1) -> list[Any]:
        """The nodes behind a ``grad_fn`` that were not known before; those of leaves are left out.

        Nodes with the number ``newer_than`` or a smaller one are left out, and what is behind them.
        """
        new = []
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self.nodes or not newer_than < number_of(node):
                continue
            if len(self.nodes) >= self._limit or time.thread_time() > self._deadline:
                self.complete = False
                break
            self.nodes.add(node)
            if not _is_leaf(node):
                new.append(node)
            stack.extend(parents(node))
        return new


def _is_leaf(node: Any) -> bool:
    return type(node).__name__ == "AccumulateGrad"


def leaves(nodes: Iterable[Any]) -> Iterator[torch.Tensor]:
    """The parameters (and other leaves) that nodes give gradients to."""
    return (node.variable for node in nodes if _is_leaf(node))


def saved(node: Any) -> Iterator[Any]:
    """What a node has saved for the backward pass, as it is stored.

    A user's hooks that would restore it (from the CPU, by computing it again) are not run: what they have packed, or
    its parts, is returned instead. Nothing comes from a node whose backward pass has run.
    """
    for name in _names(type(node)):
        raw = _attribute(node, name)
        for item in raw if isinstance(raw, (tuple, list)) else (raw,):
            data = _attribute(item, "data")
            if data is not None:
                # hooks may have packed a tensor together with something else, as tbmem's own do in a window
                yield from data if type(data) in (tuple, list) else (data,)


def _attribute(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except Exception as error:
        raise_interruption(error)
        return None


@plain.remembered
def _names(kind: type) -> tuple[str, ...]:
    """Names of what a type of node saves; only the raw form tells without running hooks."""
    return tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
