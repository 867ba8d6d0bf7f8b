"""Log of a training run's allocations, with phase, module, category and source lines."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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
"""Blocks of the allocator are multiples of this: sizes that round to the same multiple are equal."""
_NEVER = np.iinfo(np.int64).max


@dataclass(slots=True)
class _Row:
    """One allocation; fields are columns of SimulatedRun."""

    size: int
    alloc_event: int
    step: int
    phase: Phase
    module: int
    operator: int
    stack: int
    stream: int
    free_event: int = -1


class AllocationLog:
    """Rows of allocations, and the current step and phase."""

    def __init__(self) -> None:
        self.phase = Phase.SETUP
        self.rows: list[_Row] = []
        self.categories: dict[int, Category] = {}
        """By row, if known."""
        self.operators: dict[str, int] = {}
        """Numbers of operators that allocated."""
        self.lines = SourceLines()
        self.stream: Callable[[], int] = int
        """The number of the CUDA stream that allocates; 0 where there are none."""
        self._step = -1
        self._events = 0
        self._step_starts: list[int] = []
        self._backward_starts: list[int] = []
        self._accumulated: list[int] = []
        self._module_numbers: dict[str, int] = {"": -1}

    def alloc(
        self, size: int, operator: str, module: str, phase: Phase, stack: int = -1, accumulates: bool = False
    ) -> int:
        """Log an allocation of the running module; returns its row.

        ``stack`` is an index of ``lines``, -1 for none; ``accumulates`` says that autograd adds in place into a plain
        tensor instead of allocating.
        """
        row, number = len(self.rows), self.operators.setdefault(operator, len(self.operators))
        where = (self._step, phase, self._module_number(module), number, stack, self.stream())
        self.rows.append(_Row(size, self._events, *where))
        self._events += 1
        if accumulates:
            self._accumulated.append(row)
        return row

    def free(self, row: int) -> None:
        """Log the free of an allocation."""
        if self.rows[row].free_event < 0:
            self.rows[row].free_event = self._events
            self._events += 1

    def set_module(self, row: int, module: str) -> None:
        """Attribute an allocation to a module."""
        self.rows[row].module = self._module_number(module)

    def _module_number(self, module: str) -> int:
        return self._module_numbers.setdefault(module, len(self._module_numbers) - 1)

    def begin_step(self, step: int) -> None:
        """Begin a training step."""
        self._step = step
        self._step_starts.append(self._events)

    def begin_phase(self, phase: Phase) -> None:
        """Begin a phase of the step."""
        self.phase = phase
        if phase is Phase.BACKWARD:
            self._backward_starts.append(self._events)

    def run(self, notes: tuple[str, ...], about: Mapping[str, Any]) -> SimulatedRun:
        """The logged allocations as columns, gradient sums merged as on a GPU."""
        merged = self._sums_in_place()
        rows = [number for number in range(len(self.rows)) if number not in merged]
        columns = {
            field.name: np.array([getattr(self.rows[number], field.name) for number in rows], dtype=np.int64)
            for field in fields(_Row)
        }
        category = np.array([self.categories.get(number, Category.UNKNOWN) for number in rows], dtype=np.int64)
        return SimulatedRun(
            **columns,
            category=self._by_lifetime(category, columns["phase"], columns["alloc_event"], columns["free_event"]),
            modules=tuple(self._module_numbers)[1:],
            operators=tuple(self.operators),
            stacks=self.lines.table(),
            notes=notes,
            about={**about, "step_starts": self._step_starts, "backward_starts": self._backward_starts},
        )

    def _sums_in_place(self) -> set[int]:
        """Merge sums of gradients into their operand; returns the merged rows.

        autograd adds gradients in place, but never into a tensor subclass such as a fake tensor: a sum whose
        operand of the same size is freed in the very next event is merged into that operand.
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
        """Fill in unknown categories.

        Allocations of the forward pass alive in the backward pass are activations; those of the backward pass other
        than gradients are autograd's; the rest is temporary.
        """
        starts = np.array([*self._backward_starts, _NEVER - 1], dtype=np.int64)
        survives = np.where(ends < 0, _NEVER, ends) > starts[np.searchsorted(starts[:-1], begins)]
        inferred = np.select(
            [phase == Phase.BACKWARD, phase == Phase.FORWARD, (phase == Phase.OPTIMIZER) | (phase == Phase.OTHER)],
            [Category.AUTOGRAD_DETAIL, np.where(survives, Category.ACTIVATION, Category.TEMPORARY), Category.TEMPORARY],
            Category.UNKNOWN,
        )
        return np.where(category == Category.UNKNOWN, inferred, category)


DEEPEST = 8
"""Lines kept of one stack."""
_WORKLOAD = Path(__file__).parents[1] / "workload"
_SHOWN = tuple(str(_WORKLOAD / name) for name in ("decoder.py", "workload.py", "train_step.py"))
"""The built-in model, its loss and the step are shown like user code."""


class SourceLines:
    """Interns stacks of source lines outside of torch, the standard library and tbmem."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Frame, ...], int] = {}
        self._is_shown: dict[str, bool] = {}

    def current_stack(self) -> int:
        """Index of the current stack; -1 if it has no line of user code."""
        lines = self._lines(sys._getframe(1), DEEPEST)
        return self._numbers.setdefault(tuple(lines), len(self._numbers)) if lines else -1

    def current_line(self) -> str:
        """The innermost line of user code as ``file.py:12``; empty if there is none."""
        for frame in self._lines(sys._getframe(1), 1):
            return "" if frame.file in _SHOWN else f"{Path(frame.file).name}:{frame.line}"
        return ""

    def table(self) -> tuple[tuple[Frame, ...], ...]:
        """All stacks, by their index."""
        return tuple(self._numbers)

    def _lines(self, frame: FrameType | None, limit: int) -> list[Frame]:
        lines: list[Frame] = []
        while frame is not None and len(lines) < limit:
            name = frame.f_code.co_filename
            if name not in self._is_shown:
                self._is_shown[name] = name in _SHOWN or owner_of(name) in (Owner.USER, Owner.INSTALLED)
            if self._is_shown[name]:
                lines.append(Frame(name, frame.f_lineno, frame.f_code.co_name))
            frame = frame.f_back
        return lines
