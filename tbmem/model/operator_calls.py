"""Which operators a recording saw run, and what memory events fell into them, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tbmem.model.columns import I16, I32, I64, Columns, column


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRows(Columns):
    """One row per call of an operator."""

    name: I32 = column(np.int32, 0)
    """Into ``OperatorCalls.names``."""
    thread: I32 = column(np.int32, 0)
    begin_ns: I64 = column(np.int64, 0)
    """Unix time."""
    end_ns: I64 = column(np.int64, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRows(Columns):
    """One row per allocation or free."""

    device: I16 = column(np.int16, 0)
    """Into the timeline's ``devices``."""
    thread: I32 = column(np.int32, 0)
    ns: I64 = column(np.int64, 0)
    """Unix time."""
    bytes: I64 = column(np.int64, 0)
    """Negative for a free."""
    call: I64 = column(np.int64)
    """Row of the innermost call around it; -1 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCalls:
    """Calls of operators, and changes of memory."""

    calls: CallRows = field(default_factory=CallRows.of)
    changes: ChangeRows = field(default_factory=ChangeRows.of)
    names: tuple[str, ...] = ()
