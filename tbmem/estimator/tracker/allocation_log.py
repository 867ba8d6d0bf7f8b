"""Log of the allocations of a training, with what each is for."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tbmem.model.category import Category, Phase
from tbmem.model.code_owner import Owner, owner_of
from tbmem.model.columns import I64
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.stacks import Frame
from tbmem.units import round_up

_ROUND = 512
"""Blocks of the allocator are multiples of this: sizes that differ by less are the same block."""
_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True)
class _Row:
    """One allocation; names are those of SimulatedRun's columns."""

    size: int
    alloc_event: int
    step: int
    phase: Phase
    module: int
    operator: int
    stack: int
    free_event: int = -1


class AllocationLog:
    """Rows of allocations, and what the training is doing at the moment."""

    def __init__(self) -> None:
        self.phase = Phase.SETUP
        self.rows: list[_Row] = []
        self.categories: dict[int, Category] = {}
        """Of rows of which it is known."""
        self.lines = SourceLines()
        self._step = -1
        self._events = 0
        self._step_starts: list[int] = []
        self._backward_starts: list[int] = []
        self._accumulated: list[int] = []
        self._module_numbers: dict[str, int] = {"": -1}
        self._operator_numbers: dict[str, int] = {}

    def alloc(
        self, size: int, operator: str, module: str, phase: Phase, stack: int = -1, accumulates: bool = False
    ) -> int:
        """Note an allocation; returns its row.

        Args:
            size: Bytes.
            operator: Who asked.
            module: Whose forward, or whose backward, that was.
            phase: When.
            stack: Number of its lines in ``lines``; -1 for none.
            accumulates: Whether a real tensor would have been added to in place.
        """
        number = self._operator_numbers.setdefault(operator, len(self._operator_numbers))
        self.rows.append(_Row(size, self._events, self._step, phase, self._module_number(module), number, stack))
        self._events += 1
        row = len(self.rows) - 1
        if accumulates:
            self._accumulated.append(row)
        return row

    def free(self, row: int) -> None:
        """Note that an allocation ended."""
        if self.rows[row].free_event < 0:
            self.rows[row].free_event = self._events
            self._events += 1

    @property
    def operators(self) -> Collection[str]:
        """Names of those that made memory."""
        return self._operator_numbers.keys()

    def set_module(self, row: int, module: str) -> None:
        """An allocation is a module's, whoever made it."""
        self.rows[row].module = self._module_number(module)

    def _module_number(self, module: str) -> int:
        return self._module_numbers.setdefault(module, len(self._module_numbers) - 1)

    def begin_step(self, step: int) -> None:
        """A training step begins."""
        self._step = step
        self._step_starts.append(self._events)

    def begin_phase(self, phase: Phase) -> None:
        """A part of the step begins."""
        self.phase = phase
        if phase is Phase.BACKWARD:
            self._backward_starts.append(self._events)

    def run(self, notes: tuple[str, ...], about: Mapping[str, Any]) -> SimulatedRun:
        """The columns, with sums that a GPU makes in place made in place."""
        merged = self._sums_in_place()
        kept = [number for number in range(len(self.rows)) if number not in merged]
        columns = {
            one.name: np.array([getattr(self.rows[number], one.name) for number in kept], dtype=np.int64)
            for one in fields(_Row)
        }
        category = np.array([self.categories.get(number, Category.UNKNOWN) for number in kept], dtype=np.int64)
        return SimulatedRun(
            **columns,
            category=self._by_lifetime(category, columns["phase"], columns["alloc_event"], columns["free_event"]),
            modules=tuple(self._module_numbers)[1:],
            operators=tuple(self._operator_numbers),
            stacks=self.lines.table(),
            notes=notes,
            about={**about, "step_starts": self._step_starts, "backward_starts": self._backward_starts},
        )

    def _sums_in_place(self) -> set[int]:
        """Rows that are merged into the operand that they would have been added to.

        autograd adds gradients in place, but never into a tensor subclass, which a fake tensor is: a sum whose
        operand of the same size ends in the very next event is that operand.
        """
        ends_at = {row.free_event: number for number, row in enumerate(self.rows) if row.free_event >= 0}
        merged: dict[int, int] = {}
        for number in self._accumulated:
            row = self.rows[number]
            operand = ends_at.get(row.alloc_event + 1)
            if operand is None or round_up(self.rows[operand].size, _ROUND) != round_up(row.size, _ROUND):
                continue
            merged[number] = into = merged.get(operand, operand)
            self.rows[into].free_event = row.free_event
            if number in self.categories:
                self.categories[into] = self.categories[number]
        return set(merged)

    def _by_lifetime(self, category: I64, phase: I64, begins: I64, ends: I64) -> I64:
        """Fill in the categories that nobody has named.

        What the forward pass makes and the backward pass finds is an activation; what the backward pass makes besides
        gradients is autograd's own; the rest is temporary.
        """
        starts = np.array([*self._backward_starts, _NEVER - 1], dtype=np.int64)
        next_backward = starts[np.searchsorted(starts[:-1], begins)]
        stays = np.where(ends < 0, _NEVER, ends) > next_backward
        guessed = np.select(
            [phase == Phase.BACKWARD, phase == Phase.FORWARD, (phase == Phase.OPTIMIZER) | (phase == Phase.OTHER)],
            [Category.AUTOGRAD_DETAIL, np.where(stays, Category.ACTIVATION, Category.TEMPORARY), Category.TEMPORARY],
            Category.UNKNOWN,
        )
        return np.where(category == Category.UNKNOWN, guessed, category)


DEEPEST = 8
"""Lines that are kept of one stack."""
_WORKLOAD = Path(__file__).parents[1] / "workload"
_SHOWN = tuple(str(_WORKLOAD / name) for name in ("decoder.py", "workload.py", "train_step.py"))
"""The built-in model, its loss and the step are shown like a user's."""


class SourceLines:
    """Stacks of lines that are neither torch's, Python's own nor tbmem's; each different one once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Frame, ...], int] = {}
        self._is_users: dict[str, bool] = {}

    def current_stack(self) -> int:
        """Number of the stack that is running; -1 where none of its lines is the user's."""
        lines = self._lines(sys._getframe(1), DEEPEST)
        if not lines:
            return -1
        return self._numbers.setdefault(tuple(lines), len(self._numbers))

    def current_line(self) -> str:
        """The innermost of the user's own lines that are running as ``file.py:12``; empty where there is none."""
        for frame in self._lines(sys._getframe(1), 1):
            return "" if frame.file in _SHOWN else f"{Path(frame.file).name}:{frame.line}"
        return ""

    def table(self) -> tuple[tuple[Frame, ...], ...]:
        """All stacks, each at its number."""
        return tuple(self._numbers)

    def _lines(self, frame: FrameType | None, most: int) -> list[Frame]:
        lines: list[Frame] = []
        known = self._is_users
        while frame is not None and len(lines) < most:
            code = frame.f_code
            name = code.co_filename
            wanted = known.get(name)
            if wanted is None:
                wanted = known[name] = is_users(name)
            if wanted:
                lines.append(Frame(name, frame.f_lineno, code.co_name))
            frame = frame.f_back
        return lines


def is_users(file: str) -> bool:
    """Whether a line of a file is shown: of an installed package's too, for a model may be one's."""
    return file in _SHOWN or owner_of(file) in (Owner.USER, Owner.INSTALLED)
