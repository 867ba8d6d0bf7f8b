"""Runs a case of a sweep and measures its memory: ``python -m tbmem.estimator.sweep.measure ANSWER RECORDING``.

The case comes as JSON on standard input; the answer is a SweepCell as JSON. Where there is none the system has ended
the process, most likely for want of memory.

On CUDA the allocator's own counters and its memory history are read. On the CPU torch.profiler counts what the
allocator hands out; a further step, in which each operator is looked at, gives categories, modules and lines.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import msgspec
import torch

from tbmem.analysis.estimates.sweep_peaks import moment_of_run, recorded_moment
from tbmem.analysis.estimates.timeline import timeline_of_run
from tbmem.analysis.recordings.analyzer import analyze
from tbmem.estimator.tracker.allocation_log import AllocationLog
from tbmem.estimator.tracker.module_stack import ModuleStack
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import make_subject
from tbmem.model.category import Category, Phase
from tbmem.model.files import atomic_write
from tbmem.model.simulated_run import FakeRun
from tbmem.model.sweep import Moment, Status, SweepCase, SweepCell
from tbmem.model.timeline import AllocationTimeline, save_timeline
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory
from tbmem.sources.trace.reader import read_trace

MAX_ENTRIES = 1_000_000
"""Events that the allocator's history keeps."""


class _Nobody:
    def begin_step(self, step: int) -> None:
        """Nobody listens."""

    def begin(self, phase: Phase) -> None:
        """Nobody listens."""

    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None:
        """Nobody listens."""


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
    """The case as the device can run it, and a sentence if that is another.

    Args:
        case: As it was asked for.
        bfloat16: Whether the device computes in bf16 (Ampere and later do).
    """
    if case.precision != "bf16" or bfloat16:
        return case, ""
    return case.in_precision("fp16"), "This device has no bf16: fp16 is used instead."


def _measured(case: SweepCase, path: Path) -> SweepCell:
    ready = case.kind == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
    usable, note = usable_precision(case, ready)
    torch.manual_seed(0)
    training = Training(usable.job(), make_subject(usable.job()), _Nobody())
    for number in range(case.warmup):
        training.step(number)
    measure = _on_cpu if case.kind == "cpu" else _on_cuda
    moment, seconds = measure(training, case, path)
    return SweepCell(case=case, status=Status.MEASURED, measured=moment, seconds=seconds, file=path.name, note=note)


def _run_steps(training: Training, case: SweepCase) -> float:
    """Run the steps that count; seconds of one."""
    began = time.perf_counter()
    for number in range(case.steps):
        training.step(case.warmup + number)
    return (time.perf_counter() - began) / case.steps


def _on_cuda(training: Training, case: SweepCase, path: Path, cuda: Any = torch.cuda) -> tuple[Moment, float]:
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
    return recorded_moment(analyze(read_snapshot(path)), allocated, reserved), seconds


def _on_cpu(training: Training, case: SweepCase, path: Path) -> tuple[Moment, float]:
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
    _keep(timeline_of_run(run, about={"case": asdict(case)}, source="count"), path)
    return replace(moment_of_run(run), allocated=allocated), seconds


def _keep(timeline: AllocationTimeline, path: Path) -> None:
    with atomic_write(path) as partial:
        if path.suffix in (".pickle", ".pkl"):
            partial.write_bytes(memory_viz_pickle(analyze(timeline, name=path.stem)))
        else:
            save_timeline(timeline, partial)


def held_bytes(training: Training) -> int:
    """Bytes of what stays from step to step; storages that several tensors share count once."""
    storages = {}
    for tensor in training.held():
        storage = tensor.untyped_storage()
        storages[storage.data_ptr() or id(tensor)] = storage.nbytes()
    return sum(storages.values())


def counted_step(training: Training, number: int) -> FakeRun:
    """One more step on real tensors, every allocation of which is noted with its module and its lines."""
    log, modules = AllocationLog(), ModuleStack()
    tracker = AllocationTracker(log, training.job.device, None, modules)
    with tracker, modules:
        for tensor in training.held():
            tracker.adopt(tensor)
        training.watch(tracker)
        modules.name(training.model, type(training.model).__name__)
        training.step(number)
        log.phase = Phase.OTHER
        training.watcher = _Nobody()
    return log.run((), {"device": training.job.device})


def main(answer: str, recording: str) -> None:
    """Measure the case on standard input."""
    case = msgspec.json.decode(sys.stdin.buffer.read(), type=SweepCase)
    cell = run_cell(case, Path(recording))
    with atomic_write(Path(answer)) as partial:
        partial.write_bytes(msgspec.json.encode(cell))


if __name__ == "__main__":
    main(*sys.argv[1:])
