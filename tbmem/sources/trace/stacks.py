"""Interned stacks and modules of a trace, from its Python calls and call stacks.

A trace has the first line of a function, not its current one. That one is known from the function it called
(``CallFrom``, since torch 2.14), or from what tbmem recorded; elsewhere the frame has no line.
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
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # address of a built-in method's object, different in each call
_MODULE_PREFIX = "nn.Module: "
_MOST_LINES = 1 << 31


class TraceStacks(StackBuilder):
    """Interns a trace's stacks and modules; ``files`` has absolute paths by the short ones in the trace."""

    def __init__(self, calls: Spans, words: list[str], called_from: I64, files: Mapping[str, str]) -> None:
        super().__init__()
        self.modules = Names()
        self._words = words
        self._names = calls["name"]
        self._parents = _rows_of(calls["parent"], calls["id"])
        self._called_from = called_from
        self._files = files
        self._frames_of_words: dict[tuple[int, int], int] = {}
        self._module_of_call: dict[int, str] = {}

    def of_calls(self, calls: I64, lines: I64) -> tuple[I32, I32]:
        """Stack and module of each innermost call (-1 for none) at its current line (0 where unknown)."""
        unique, inverse = np.unique(calls * _MOST_LINES + lines, return_inverse=True)
        numbers = [self._numbers(*divmod(key, _MOST_LINES)) for key in unique.tolist()]
        table = np.array(numbers, np.int32).reshape(-1, 2)
        return table[inverse, 0], table[inverse, 1]

    def of_texts(self, texts: list[str]) -> I32:
        """Stack of each text such as ``'b.py(3): g;a.py(1): f'``, as torch wrote until 2021."""
        stacks = [self.stack(self._frame(call) for call in text.split(";") if call) for text in texts]
        return np.array(stacks, np.int32)

    def _numbers(self, call: int, line: int) -> tuple[int, int]:
        if call < 0:
            return -1, -1
        module = self.modules[self._module(call)]
        frames = []
        while call >= 0:
            word = int(self._names[call])
            number = self._frames_of_words.get((word, line))
            if number is None:
                number = self._frames_of_words[word, line] = self._function(self._words[word], line)
            frames.append(number)
            line, call = int(self._called_from[call]), int(self._parents[call])
        return self.stack(frames), module

    def _function(self, name: str, line: int) -> int:
        """Frame of a function at its current line; a C function has neither file nor line."""
        plain = _ADDRESS.sub("", name)
        call = _CALL.fullmatch(plain)
        if call is None:
            return self.frame("", 0, plain)
        file, first, function = self._files.get(call[1], call[1]), call[2], call[3]
        if not line and not function.startswith("<") and owner_of(file) <= Owner.INSTALLED:
            function = f"{function} (from line {first})"  # a file may have many functions of that name
        return self.frame(file, line, function)

    def _module(self, call: int) -> str:
        """Path of the module whose forward a call is in, with its parents; empty outside of modules."""
        chain = []
        while call >= 0 and call not in self._module_of_call:
            chain.append(call)
            call = int(self._parents[call])
        path = self._module_of_call.get(call, "")
        for inner in reversed(chain):
            name = self._words[int(self._names[inner])]
            if name.startswith(_MODULE_PREFIX):
                path = f"{path}.{name.removeprefix(_MODULE_PREFIX)}".lstrip(".")
            self._module_of_call[inner] = path
        return path

    def _frame(self, text: str) -> int:
        """Frame of a call in a text, which has the current line."""
        call = _CALL.fullmatch(text)
        return self.frame(call[1], int(call[2]), call[3]) if call else self.frame("", 0, text)


def _rows_of(wanted: I64, ids: I64) -> I64:
    """Row of each wanted id; -1 for an unknown one."""
    order = np.argsort(ids, kind="stable")
    rows = np.append(order, -1)[np.searchsorted(ids[order], wanted)]
    return np.where((np.append(ids, -1)[rows] == wanted) & (wanted >= 0), rows, -1)
