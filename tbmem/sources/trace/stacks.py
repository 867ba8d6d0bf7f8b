"""Interned stacks and modules of a trace, from its Python calls and call stacks.

A trace names a function with the line at which it begins, not the one that it had come to. That one is known from the
function that it called (``CallFrom``, which torch writes since 2.14), and from what tbmem noted when it recorded.
Where it is not known, the function is told without a line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.columns import I32, I64
from tbmem.model.stacks import Names, StackBuilder
from tbmem.sources.trace.columns import Spans

_CALL = re.compile(r"(.*)\((\d+)\): (.*)", re.DOTALL)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""Of the object that a built-in method belongs to: another one in each call."""
_MODULE_PREFIX = "nn.Module: "
_MOST_LINES = 1 << 31


class TraceStacks:
    """Interns the stacks and modules of one trace.

    Args:
        calls: Python calls, each with its own number, its caller's and its name's.
        words: The names.
        called_from: By call: the line from which it was called; 0 where that is not known.
        files: Whole paths by the short ones that the trace has.
    """

    def __init__(self, calls: Spans, words: list[str], called_from: I64, files: Mapping[str, str]) -> None:
        self.builder = StackBuilder()
        self.modules = Names()
        self._words = words
        self._names = calls["name"]
        self._parents = _rows_of(calls["parent"], calls["id"])
        self._called_from = called_from
        self._files = files
        self._frames_of_words: dict[tuple[int, int], int] = {}
        self._node_of_call: dict[int, int] = {}
        self._nodes: dict[tuple[int, int], int] = {}
        self._modules: list[str] = []

    def of_calls(self, calls: I64, lines: I64) -> tuple[I32, I32]:
        """Stack and module of each of some calls; -1 stays -1.

        Args:
            calls: The innermost call of each stack.
            lines: The line that it had come to; 0 where that is not known.
        """
        unique, which = np.unique(calls * _MOST_LINES + lines, return_inverse=True)
        numbers = [self._numbers(*divmod(one, _MOST_LINES)) for one in unique.tolist()]
        table = np.array(numbers, np.int32).reshape(-1, 2)
        return table[which, 0], table[which, 1]

    def of_texts(self, texts: list[str]) -> I32:
        """Stack of each text such as ``'b.py(3): g;a.py(1): f'``, as torch wrote until 2021."""
        stacks = [self.builder.stack(self._frame(one) for one in text.split(";") if one) for text in texts]
        return np.array(stacks, np.int32)

    def _numbers(self, call: int, line: int) -> tuple[int, int]:
        if call < 0:
            return -1, -1
        node = self._node(call)
        module = self.modules.number(self._modules[node])
        return self.builder.stack(self._frames(call, line)), module

    def _frames(self, call: int, line: int) -> list[int]:
        frames = []
        while call >= 0:
            frames.append(self._frame_of_word(int(self._names[call]), line))
            line = int(self._called_from[call])
            call = int(self._parents[call])
        return frames

    def _frame_of_word(self, word: int, line: int) -> int:
        number = self._frames_of_words.get((word, line))
        if number is None:
            number = self._frames_of_words[word, line] = self._function(self._words[word], line)
        return number

    def _function(self, name: str, line: int) -> int:
        """A function of Python's with the line that it had come to; one that is made in C has neither file nor line."""
        plain = _ADDRESS.sub("", name)
        call = _CALL.fullmatch(plain)
        if call is None:
            return self.builder.frame("", 0, plain)
        file, first, function = self._files.get(call[1], call[1]), call[2], call[3]
        if not line and not function.startswith("<") and owner_of(file) <= Owner.INSTALLED:
            function = f"{function} (from line {first})"  # a file may have many functions of that name
        return self.builder.frame(file, line, function)

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
            path = self._modules[parent] if parent >= 0 else ""
            if name.startswith(_MODULE_PREFIX):
                path = f"{path}.{name.removeprefix(_MODULE_PREFIX)}".lstrip(".")
            self._modules.append(path)
        return node

    def _frame(self, text: str) -> int:
        """A line of a call stack as text: there the line is the one that the function had come to."""
        call = _CALL.fullmatch(text)
        return self.builder.frame(call[1], int(call[2]), call[3]) if call else self.builder.frame("", 0, text)


def _rows_of(wanted: I64, ids: I64) -> I64:
    """Row of each id; -1 for an id that no row has."""
    if not len(ids):
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], wanted), len(ids) - 1)
    rows = order[place]
    return np.where((ids[rows] == wanted) & (wanted >= 0), rows, -1)
