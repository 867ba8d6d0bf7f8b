"""Allocs and frees as they happen go in, the columns of a FakeRun come out."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tbmem.model.category import Category, Phase
from tbmem.model.fake_run import FakeRun
from tbmem.sources.fake.user_lines import UserLines

_ROUND = 512
"""Blocks of the allocator are multiples of this: sizes that differ by less are the same block."""


class AllocationLog:
    """Rows of allocations, and what the training is doing at the moment."""

    def __init__(self) -> None:
        self.phase = Phase.SETUP
        self.step = -1
        self.sizes: list[int] = []
        self.born: list[int] = []
        self.died: list[int] = []
        self.live_bytes = 0
        self.peak_bytes = 0
        self.categories: dict[int, Category] = {}
        self.step_starts: list[int] = []
        self.backward_starts: list[int] = []
        self._steps: list[int] = []
        self._phases: list[int] = []
        self._modules: list[int] = []
        self._operators: list[int] = []
        self._stacks: list[int] = []
        self.lines = UserLines()
        self._accumulated: set[int] = set()
        self._module_numbers: dict[str, int] = {"": -1}
        self._operator_numbers: dict[str, int] = {}
        self._events = 0

    def alloc(
        self, size: int, operator: str, module: str, phase: Phase, accumulates: bool = False, stack: int = -1
    ) -> int:
        """Note an allocation; returns its row.

        Args:
            size: Bytes.
            operator: Who asked.
            module: Whose forward, or whose backward, that was.
            phase: When.
            accumulates: Whether a real tensor would have been added to in place.
            stack: Number of its lines in ``lines``; -1 for none.
        """
        row = len(self.sizes)
        self.sizes.append(size)
        self.born.append(self._events)
        self.died.append(-1)
        self._steps.append(self.step)
        self._phases.append(phase)
        self._modules.append(self._module_number(module))
        self._operators.append(self._operator_numbers.setdefault(operator, len(self._operator_numbers)))
        self._stacks.append(stack)
        if accumulates:
            self._accumulated.add(row)
        self._events += 1
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        return row

    @property
    def operators(self) -> Collection[str]:
        """Names of those that made memory."""
        return self._operator_numbers.keys()

    def belongs_to(self, row: int, module: str) -> None:
        """An allocation is a module's, whoever made it."""
        self._modules[row] = self._module_number(module)

    def _module_number(self, module: str) -> int:
        return self._module_numbers.setdefault(module, len(self._module_numbers) - 1)

    def begin_step(self, step: int) -> None:
        """A training step begins."""
        self.step = step
        self.step_starts.append(self._events)

    def begin(self, phase: Phase) -> None:
        """A part of the step begins."""
        self.phase = phase
        if phase is Phase.BACKWARD:
            self.backward_starts.append(self._events)

    def free(self, row: int) -> None:
        """Note that an allocation ended."""
        if self.died[row] < 0:
            self.died[row] = self._events
            self._events += 1
            self.live_bytes -= self.sizes[row]

    def run(self, notes: tuple[str, ...], about: Mapping[str, Any]) -> FakeRun:
        """The columns, with sums that a GPU makes in place made in place."""
        kept, died = self._in_place()
        take = np.array(kept, dtype=np.int64)
        return FakeRun(
            size=np.array(self.sizes, dtype=np.int64)[take],
            alloc_event=np.array(self.born, dtype=np.int64)[take],
            free_event=np.array(died, dtype=np.int64)[take],
            step=np.array(self._steps, dtype=np.int64)[take],
            phase=np.array(self._phases, dtype=np.int64)[take],
            category=np.array([self.categories.get(row, Category.UNKNOWN) for row in range(len(died))], dtype=np.int64)[
                take
            ],
            module=np.array(self._modules, dtype=np.int64)[take],
            operator=np.array(self._operators, dtype=np.int64)[take],
            stack=np.array(self._stacks, dtype=np.int64)[take],
            modules=tuple(self._module_numbers)[1:],
            operators=tuple(self._operator_numbers),
            stacks=self.lines.table(),
            notes=notes,
            about={**about, "step_starts": self.step_starts, "backward_starts": self.backward_starts},
        )

    def _in_place(self) -> tuple[list[int], list[int]]:
        """Rows that remain, and when each ends.

        autograd adds gradients in place, but never into a tensor subclass, which a fake tensor is: a sum whose
        operand of the same size ends in the very next event is that operand.
        """
        ends_at = {event: row for row, event in enumerate(self.died) if event >= 0}
        died = list(self.died)
        merged: dict[int, int] = {}
        for row in sorted(self._accumulated):
            operand = ends_at.get(self.born[row] + 1)
            if operand is None or _blocks(self.sizes[operand]) != _blocks(self.sizes[row]):
                continue
            into = merged.get(operand, operand)
            merged[row] = into
            died[into] = self.died[row]
            if row in self.categories:
                self.categories[into] = self.categories[row]
        return [row for row in range(len(died)) if row not in merged], died


def _blocks(size: int) -> int:
    return (size + _ROUND - 1) // _ROUND
