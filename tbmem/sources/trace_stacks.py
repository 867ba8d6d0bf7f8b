"""Python calls and call stacks of a trace go in; numbers of interned stacks and modules come out."""

from __future__ import annotations

import re

import numpy as np

from tbmem.model.columns import I32, I64
from tbmem.model.stacks import Names, StackBuilder
from tbmem.sources.trace_columns import Spans

_CALL = re.compile(r"(.*)\((\d+)\): (.*)", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Of the object that a built-in method belongs to: another one in each call."""
_MODULE_PREFIX = "nn.Module: "


class TraceStacks:
    """Interns the stacks and modules of one trace.

    Args:
        calls: Python calls, each with its own number, its caller's and its name's.
        words: The names.
    """

    def __init__(self, calls: Spans, words: list[str]) -> None:
        self.builder = StackBuilder()
        self.modules = Names()
        self._words = words
        self._names = calls["name"]
        self._parents = _rows_of(calls["parent"], calls["id"])
        self._frame_of_word: dict[int, int] = {}
        self._node_of_call: dict[int, int] = {}
        self._nodes: dict[tuple[int, int], int] = {}
        self._modules: list[str] = []

    def of_calls(self, calls: I64) -> tuple[I32, I32]:
        """Stack and module of each of some calls; -1 stays -1."""
        unique, which = np.unique(calls, return_inverse=True)
        numbers = [self._numbers(call) for call in unique.tolist()]
        table = np.array(numbers, np.int32).reshape(-1, 2)
        return table[which, 0], table[which, 1]

    def of_texts(self, texts: list[str]) -> I32:
        """Stack of each text such as ``'b.py(3): g;a.py(1): f'``, as torch wrote until 2021."""
        stacks = [self.builder.stack(self._frame(one) for one in text.split(";") if one) for text in texts]
        return np.array(stacks, np.int32)

    def _numbers(self, call: int) -> tuple[int, int]:
        if call < 0:
            return -1, -1
        node = self._node(call)
        module = self.modules.number(self._modules[node])
        return self.builder.stack(self._frames(call)), module

    def _frames(self, call: int) -> list[int]:
        frames = []
        while call >= 0:
            frames.append(self._frame_of_word[int(self._names[call])])
            call = int(self._parents[call])
        return frames

    def _node(self, call: int) -> int:
        """Number of the chain of calls that ends in this one; equal chains have one number."""
        chain = []
        while call >= 0 and call not in self._node_of_call:
            chain.append(call)
            call = int(self._parents[call])
        node = self._node_of_call[call] if call >= 0 else -1
        for one in reversed(chain):
            node = self._node_of_call[one] = self._child(node, int(self._names[one]))
        return node

    def _child(self, parent: int, word: int) -> int:
        node = self._nodes.get((parent, word))
        if node is None:
            node = self._nodes[parent, word] = len(self._nodes)
            name = self._words[word]
            self._frame_of_word.setdefault(word, self._frame(name))
            path = self._modules[parent] if parent >= 0 else ""
            if name.startswith(_MODULE_PREFIX):
                path = f"{path}.{name.removeprefix(_MODULE_PREFIX)}".lstrip(".")
            self._modules.append(path)
        return node

    def _frame(self, name: str) -> int:
        plain = _ADDRESS.sub("", name)
        call = _CALL.fullmatch(plain)
        return self.builder.frame(call[1], int(call[2]), call[3]) if call else self.builder.frame("", 0, plain)


def _rows_of(wanted: I64, ids: I64) -> I64:
    """Row of each id; -1 for an id that no row has."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    rows = order[place]
    return np.where((ids[rows] == wanted) & (wanted >= 0), rows, -1)
