"""Runs a case of a sweep and measures its memory: ``python -m tbmem.estimator.sweep_case ANSWER RECORDING``.

The case is read as JSON from standard input; the answer is a SweepCell as JSON. No answer means that the operating
system ended the process, most likely because memory ran out.

On CUDA the allocator's own counters and its memory history are read. On the CPU torch.profiler counts what the
allocator hands out; one more step, in which each operator is tracked, gives categories, modules and lines.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch

from tbmem.analysis.allocator.replay import EventKind
from tbmem.analysis.allocator.settings import AllocatorSettings
from tbmem.analysis.estimates.fit import by_category, estimate_from_run, order_events
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.analysis.recordings.result import Analysis
from tbmem.analysis.source_lines import short
from tbmem.estimator.tracker.allocation_log import AllocationLog
from tbmem.estimator.tracker.module_stack import ModuleStack
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import make_workload
from tbmem.model.category import Category, Phase
from tbmem.model.files import atomic_write
from tbmem.model.gpus import Gpu
from tbmem.model.job import Job
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.sweep import LargeAllocation, MemoryPeak, Status, SweepCase, SweepCell
from tbmem.model.timeline import save_timeline
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory
from tbmem.sources.trace.reader import read_trace

MAX_ENTRIES = 1_000_000
"""Events that the allocator's history keeps."""
_LARGEST = 8
"""Largest allocations of a peak that are listed."""


class NullObserver:
    """Ignores what a training run reports."""

    def begin_step(self, step: int) -> None:
        """Do nothing."""

    def begin_phase(self, phase: Phase) -> None:
        """Do nothing."""

    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None:
        """Do nothing."""


def run_cell(case: SweepCase, path: Path) -> SweepCell:
    """Measure one case.

    Args:
        case: What to run.
        path: Where its recording goes: on CUDA a snapshot; on the CPU a timeline (``.npz``), or a pickle that
            pytorch.org/memory_viz opens.
    """
    try:
        return _measured(case, path)
    except Exception as error:
        kind, line = type(error).__name__, (str(error).splitlines() or [""])[0]
        if is_out_of_memory(error):
            return SweepCell(case=case, status=Status.OUT_OF_MEMORY, note=line or kind)
        return SweepCell(case=case, status=Status.FAILED, note=f"{kind}: {line}")


def usable_precision(case: SweepCase, bfloat16: bool) -> tuple[SweepCase, str]:
    """The case in a precision that the device supports, and a sentence if it was changed."""
    if case.precision != "bf16" or bfloat16:
        return case, ""
    return case.in_precision("fp16"), "This device has no bf16: fp16 is used instead."


def _measured(case: SweepCase, path: Path) -> SweepCell:
    bfloat16 = case.kind == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    usable, note = usable_precision(case, bfloat16)
    torch.manual_seed(0)
    training = Training(usable.job(), make_workload(usable.job()), NullObserver())
    for number in range(case.warmup):
        training.step(number)
    measure = _on_cpu if case.kind == "cpu" else _on_cuda
    peak, seconds = measure(training, case, path)
    return SweepCell(case=case, status=Status.MEASURED, measured=peak, seconds=seconds, file=path.name, note=note)


def _run_steps(training: Training, case: SweepCase) -> float:
    """Run the measured steps; returns seconds per step."""
    began = time.perf_counter()
    for number in range(case.steps):
        training.step(case.warmup + number)
    return (time.perf_counter() - began) / case.steps


def _on_cuda(training: Training, case: SweepCase, path: Path, cuda: Any = torch.cuda) -> tuple[MemoryPeak, float]:
    history = MemoryHistory(cuda.memory, MAX_ENTRIES)
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    history.start()
    try:
        seconds = _run_steps(training, case)
        cuda.synchronize()
        allocated, reserved = cuda.max_memory_allocated(), cuda.max_memory_reserved()
        history.write(path)
    finally:
        history.stop()
    return recorded_peak(analyze(read_snapshot(path)), allocated, reserved), seconds


def _on_cpu(training: Training, case: SweepCase, path: Path) -> tuple[MemoryPeak, float]:
    held = held_bytes(training)
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        trace = Path(folder, "steps.json")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            seconds = _run_steps(training, case)
        profiler.export_chrome_trace(str(trace))
        counted = read_trace(trace)
    device = counted.device_number("cpu")
    allocated = held + counted.peak(device).bytes - counted.devices[device].base_bytes
    run = counted_step(training, case.warmup + case.steps)
    timeline = timeline_of_run(run, about={"case": asdict(case)}, source="count")
    with atomic_write(path) as partial:
        if path.suffix in (".pickle", ".pkl"):
            partial.write_bytes(memory_viz_pickle(analyze(timeline, name=path.stem)))
        else:
            save_timeline(timeline, partial)
    return replace(peak_of_run(run), allocated=allocated), seconds


def held_bytes(training: Training) -> int:
    """Bytes of tensors that persist between steps; shared storages count once."""
    storages = {}
    for tensor in training.held():
        storage = tensor.untyped_storage()
        storages[storage.data_ptr() or id(tensor)] = storage.nbytes()
    return sum(storages.values())


def counted_step(training: Training, number: int) -> SimulatedRun:
    """Run one more step on real tensors, and track its allocations with module and source lines."""
    log, modules = AllocationLog(), ModuleStack()
    tracker = AllocationTracker(log, training.job.device, None, modules)
    with tracker, modules:
        for tensor in training.held():
            tracker.adopt(tensor)
        training.watch(tracker)
        modules.register_names(training.model, type(training.model).__name__)
        training.step(number)
        log.phase = Phase.OTHER
        training.observer = NullObserver()
    return log.run((), {"device": training.job.device})


def peak_of_run(run: SimulatedRun) -> MemoryPeak:
    """The peak of a run's last step, in requested bytes: no allocator rounds them."""
    order = order_events(run)
    held = np.cumsum(np.where(order.events.kind == EventKind.ALLOC, order.events.size, -order.events.size))
    starts = run.about["step_starts"]
    first = min(int(order.first_event_from(starts[-1:])[0]), len(held) - 1) if starts else 0
    peak = first + int(np.argmax(held[first:]))
    rows = order.alive_at(peak)
    of_step = rows[run.step[rows] == run.step.max()]
    largest = of_step[np.lexsort((of_step, -run.size[of_step]))][:_LARGEST]
    return MemoryPeak(
        allocated=int(held[peak]),
        phase=Phase(int(run.phase[order.row[peak]])).name.lower(),
        parts=by_category(run, rows),
        largest=tuple(_large_allocation(run, row) for row in largest.tolist()),
        activations=order.peak_bytes(run.category == Category.ACTIVATION),
    )


def predicted_peak(job: Job, run: SimulatedRun, gpu: Gpu | None) -> MemoryPeak:
    """The peak of an estimate; ``gpu=None``: of the CPU, which has no caching allocator."""
    peak = peak_of_run(run)
    if gpu is None:
        return peak
    estimate = estimate_from_run(job, run, AllocatorSettings(), gpu)
    return replace(peak, allocated=estimate.steady_step, reserved=estimate.peak_reserved)


def recorded_peak(analysis: Analysis, allocated: int, reserved: int | None) -> MemoryPeak:
    """The peak of a recording; ``allocated`` and ``reserved`` are the device's own counters, in bytes."""
    device = analysis.main
    top = [row for row in device.top if row.alloc_event >= 0][:_LARGEST]
    activation = Category.ACTIVATION.name.lower()
    return MemoryPeak(
        allocated=allocated,
        reserved=reserved,
        phase=device.peak.phase.lower(),
        parts={share.name.lower(): share.bytes for share in device.by_category if share.bytes},
        largest=tuple(
            LargeAllocation(
                bytes=row.bytes, category=row.category.lower(), what=row.module or row.operator, line=row.line
            )
            for row in top
        ),
        activations=max(
            (share.max_bytes or 0 for share in device.by_category if share.name.lower() == activation), default=0
        ),
    )


def _large_allocation(run: SimulatedRun, row: int) -> LargeAllocation:
    module, stack = int(run.module[row]), int(run.stack[row])
    return LargeAllocation(
        bytes=int(run.size[row]),
        category=Category(int(run.category[row])).name.lower(),
        what=run.modules[module] if module >= 0 else run.operators[int(run.operator[row])],
        line=short(run.stacks[stack][0]) if stack >= 0 else "",
    )


def main(answer: str, recording: str) -> None:
    """Measure the case on standard input."""
    case = msgspec.json.decode(sys.stdin.buffer.read(), type=SweepCase)
    cell = run_cell(case, Path(recording))
    with atomic_write(Path(answer)) as partial:
        partial.write_bytes(msgspec.json.encode(cell))


if __name__ == "__main__":
    main(*sys.argv[1:])
