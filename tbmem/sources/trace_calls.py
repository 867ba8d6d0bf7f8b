"""Columns of a trace go in; calls of operators and changes of memory, on the timeline's clock and devices, come out."""

from __future__ import annotations

import numpy as np

from tbmem.model.operator_calls import CallRows, ChangeRows, OperatorCalls
from tbmem.model.timeline import AllocationTimeline
from tbmem.sources.nesting import innermost
from tbmem.sources.trace_columns import TraceColumns


def calls_of(columns: TraceColumns, timeline: AllocationTimeline, clock_zero: int) -> OperatorCalls:
    """Calls and changes of a trace.

    Args:
        columns: The trace.
        timeline: What was made of it: its devices are those of the changes.
        clock_zero: Unix time at which the trace's clock reads 0, in nanoseconds.
    """
    spans, memory = columns.operators, columns.memory
    used, name = np.unique(spans["name"], return_inverse=True)
    words = list(columns.words)
    device = np.full(len(memory), -1, np.int16)
    for number, one in enumerate(timeline.devices):
        device[(memory["type"] == one.type) & ((memory["index"] == one.index) | (one.type == 0))] = number
    return OperatorCalls(
        calls=CallRows.of(
            len(spans),
            name=name.reshape(-1),
            thread=spans["thread"],
            begin_ns=spans["begin"] + clock_zero,
            end_ns=spans["end"] + clock_zero,
        ),
        changes=ChangeRows.of(
            len(memory),
            device=device,
            thread=memory["thread"],
            ns=memory["begin"] + clock_zero,
            bytes=memory["bytes"],
            call=innermost(spans["thread"], spans["begin"], spans["end"], memory["thread"], memory["begin"]),
        ),
        names=tuple(words[number] for number in used.tolist()),
    )
