"""The highest moment of a run or a recording, as the tables of a sweep have it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tbmem.analysis.allocator.events import EventKind
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.event_order import events_of_run
from tbmem.analysis.estimates.fit import by_category, estimate_of
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.source_lines import short
from tbmem.model.category import Category, Phase
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.model.simulated_run import FakeRun
from tbmem.model.sweep import Large, Moment

TOP = 8
_ACTIVATION = Category.ACTIVATION.name.lower()


def moment_of_run(run: FakeRun) -> Moment:
    """The highest moment of a run's last step, in bytes that were asked for: no allocator rounds them."""
    order = events_of_run(run)
    held = np.cumsum(np.where(order.events.kind == EventKind.ALLOC, order.events.size, -order.events.size))
    starts = run.about["step_starts"]
    first = min(int(order.at(starts[-1:])[0]), len(held) - 1) if starts else 0
    peak = first + int(np.argmax(held[first:]))
    rows = order.alive_at(peak)
    made = rows[run.step[rows] == run.step.max()]
    largest = made[np.lexsort((made, -run.size[made]))][:TOP]
    return Moment(
        allocated=int(held[peak]),
        phase=Phase(int(run.phase[order.row[peak]])).name.lower(),
        parts=by_category(run, rows),
        largest=tuple(_large(run, row) for row in largest.tolist()),
        activations=order.most(run.category == Category.ACTIVATION),
    )


def predicted_moment(job: Job, run: FakeRun, gpu: Gpu | None) -> Moment:
    """The same of an estimate, as the device would count it.

    Args:
        job: What was executed.
        run: Its allocations.
        gpu: Whose caching allocator serves them; ``None`` for the CPU, which has none.
    """
    moment = moment_of_run(run)
    if gpu is None:
        return moment
    estimate = estimate_of(job, run, AllocatorSettings(), gpu)
    return replace(moment, allocated=estimate.steady_step, reserved=estimate.peak_reserved)


def recorded_moment(analysis: Analysis, allocated: int, reserved: int | None) -> Moment:
    """The same of a recording.

    Args:
        analysis: Of the recording.
        allocated: The peak as the device counted it.
        reserved: The same of its segments.
    """
    device = analysis.main
    return Moment(
        allocated=allocated,
        reserved=reserved,
        phase=device.peak.phase.lower(),
        parts={share.name.lower(): share.bytes for share in device.by_category if share.bytes},
        largest=tuple(
            Large(bytes=one.bytes, category=one.category.lower(), what=one.module or one.operator, line=one.line)
            for one in [one for one in device.top if one.alloc_event >= 0][:TOP]
        ),
        activations=max(
            (share.max_bytes or 0 for share in device.by_category if share.name.lower() == _ACTIVATION), default=0
        ),
    )


def _large(run: FakeRun, row: int) -> Large:
    module, stack = int(run.module[row]), int(run.stack[row])
    return Large(
        bytes=int(run.size[row]),
        category=Category(int(run.category[row])).name.lower(),
        what=run.modules[module] if module >= 0 else run.operators[int(run.operator[row])],
        line=short(run.stacks[stack][0]) if stack >= 0 else "",
    )
