"""Runs a sweep: predicts each case, measures it in a child process, and writes the tables.

The child, ``python -m tbmem.estimator.sweep ANSWER RECORDING``, reads a case as JSON from standard input and writes a
SweepCell as JSON. No answer means that the operating system ended the process, most likely because memory ran out.

On CUDA the allocator's own counters and its memory history are read. On the CPU torch.profiler counts what the
allocator hands out; one more step, in which each operator is tracked, gives categories, modules and lines.
"""

from __future__ import annotations

import os
import subprocess  # nosec B404  # starts this interpreter, without a shell
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
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
from tbmem.errors import UsageError, described, did_you_mean, first_line
from tbmem.estimator.tracker.tracker import AllocationTracker
from tbmem.estimator.worker import child_environment, simulate_jobs
from tbmem.estimator.workload.decoder import SHAPES, built_in_sizes, parameters_of
from tbmem.estimator.workload.train_step import Training
from tbmem.estimator.workload.workload import make_workload
from tbmem.model.category import Category, Phase
from tbmem.model.files import TIMELINE_SUFFIX, atomic_write
from tbmem.model.gpus import Gpu
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.sweep import LargeAllocation, MemoryPeak, ModelFacts, Status, Sweep, SweepCase, SweepCell, file_stems
from tbmem.model.timeline import save_timeline
from tbmem.present.exports.memory_viz import memory_viz_pickle
from tbmem.present.text.sweep import activation_text, largest_text, peak_table, precision_table
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.snapshot.reader import read_snapshot
from tbmem.sources.torch_state.memory_history import MemoryHistory
from tbmem.sources.torch_state.out_of_memory import is_out_of_memory
from tbmem.sources.trace.reader import read_trace
from tbmem.units import format_bytes

_PICKLES = (".pickle", ".pkl")
_MAX_ENTRIES = 1_000_000
"""Events that the allocator's history keeps."""
_LARGEST = 8
"""Largest allocations of a peak that are listed."""
_TEXTS = {
    "peak_memory_summary.txt": peak_table,
    "mixed_precision_memory_summary.txt": precision_table,
    "activation_size_analysis.txt": activation_text,
    "largest_allocations.txt": largest_text,
}


def sweep(
    cases: Sequence[SweepCase], output: Path, gpu: Gpu | None = None, notes: tuple[str, ...] = ()
) -> Iterator[Sweep]:
    """Measure all cases; gives all that was measured so far after each of them, when the tables are rewritten.

    Args:
        cases: Cases to measure.
        output: Folder of tables and recordings, created if missing; or the recording's file for a single case.
        gpu: The device; ``None`` for the CPU.
        notes: Sentences for the tables.

    Raises:
        UsageError: There is no such model, a case is invalid, or the output cannot be written.
    """
    for case in cases:
        _check_model(case)
    unique = tuple(dict.fromkeys(cases))
    if tables_folder(output) is None and len(unique) > 1:
        raise UsageError(f"--output {output}: {len(unique)} runs cannot share a file; name a folder")
    _check_output(output)
    return _measured(unique, output, gpu, notes)


def _measured(cases: tuple[SweepCase, ...], output: Path, gpu: Gpu | None, notes: tuple[str, ...]) -> Iterator[Sweep]:
    folder, predictions = tables_folder(output), _predictions(cases, gpu)
    models = {case.size: model_facts(case.size) for case in cases}
    result = Sweep(device=gpu.name if gpu is not None else "cpu", cells=(), models=models, notes=notes)
    for case, stem in zip(cases, file_stems(cases), strict=True):
        suffix = "_snapshot.pickle" if case.kind == "cuda" else TIMELINE_SUFFIX
        cell = _cell(case, output if folder is None else folder / f"{stem}{suffix}", predictions[case])
        result = replace(result, cells=(*result.cells, cell))
        if folder is not None:
            contents = {name: f"{text}\n" for name, text in render_tables(result).items()}
            for name, text in {**contents, "sweep.json": to_json(result)}.items():
                with atomic_write(folder / name) as partial:
                    partial.write_text(text)
        yield result


def tables_folder(output: Path) -> Path | None:
    """Folder of the tables; ``None`` if ``output`` is the file of a recording."""
    return None if output.suffix in (*_PICKLES, ".npz") else output


def render_tables(sweep: Sweep) -> dict[str, str]:
    """Each table by its file name; mixed precision only if a case uses it."""
    mixed = any(cell.case.precision != "fp32" for cell in sweep.cells)
    return {name: "\n".join(lines(sweep)) for name, lines in _TEXTS.items() if mixed or lines is not precision_table}


def to_json(sweep: Sweep) -> str:
    """The sweep as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(sweep), indent=2).decode()


def _check_model(case: SweepCase) -> None:
    shape = SHAPES.get(case.size.lower())
    if shape is None:
        hint = did_you_mean(case.size, SHAPES) or f"there are {built_in_sizes()}"
        raise UsageError(f"--model-size {case.size}: {hint}")
    if not shape.llama and case.context > shape.context:
        raise UsageError(
            f"--context-length {case.context}: {case.size} has learnt positions for {shape.context} tokens only"
        )


def _check_output(output: Path) -> None:
    """Create the folder, and check that results can be written, before the first case."""
    folder = tables_folder(output) or output.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"--output {folder}: a file is in the way; name a folder, or of one run a .pickle") from None
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}; name a folder that can be written") from error
    if folder != output and output.is_dir():
        raise UsageError(f"--output {output}: is a folder; a name that ends so is that of a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--output {folder}: cannot be written; name another folder")


def model_facts(size: str) -> ModelFacts:
    """Dimensions of a built-in model."""
    shape = SHAPES[size.lower()]
    names = ("layers", "width", "heads", "inner", "vocabulary")
    return ModelFacts(size=size, parameters=parameters_of(shape), **{name: getattr(shape, name) for name in names})


def _predictions(cases: Sequence[SweepCase], gpu: Gpu | None) -> dict[SweepCase, MemoryPeak | UsageError]:
    jobs = [case.job() for case in cases]
    if gpu is not None:
        jobs = [job.on(gpu) for job in jobs]
    predictions: dict[SweepCase, MemoryPeak | UsageError] = {}
    for case, job, outcome in zip(cases, jobs, simulate_jobs(jobs, timeout=600.0 + 60 * len(jobs)), strict=True):
        if isinstance(outcome, UsageError):
            predictions[case] = outcome
            continue
        predictions[case] = peak = peak_of_run(outcome)
        if gpu is not None:
            estimate = estimate_from_run(job, outcome, AllocatorSettings(), gpu)
            predictions[case] = replace(peak, allocated=estimate.steady_step, reserved=estimate.peak_reserved)
    return predictions


def _cell(case: SweepCase, path: Path, predicted: MemoryPeak | UsageError) -> SweepCell:
    if isinstance(predicted, UsageError):
        cell = measure_in_child(case, path)
        return replace(cell, note="; ".join(filter(None, [cell.note, f"no prediction: {predicted}"])))
    if case.kind == "cpu" and (note := _too_much(predicted)):
        return SweepCell(case=case, status=Status.OUT_OF_MEMORY, predicted=predicted, note=note)
    return replace(measure_in_child(case, path), predicted=predicted)


def _too_much(predicted: MemoryPeak) -> str:
    """Why a case is not started, so as not to exhaust the host's memory; empty if it fits."""
    host = HostMemory(reset_peaks=False, workers=False)
    available = host.available
    host.close()
    if available is None or predicted.allocated < available:
        return ""
    return f"not run: {format_bytes(predicted.allocated)} are predicted, {format_bytes(available)} are available"


def measure_in_child(case: SweepCase, path: Path) -> SweepCell:
    """Run a case in a child process, which may be killed when memory runs out."""
    changes, index = {}, case.device.partition(":")[2]
    if index:  # only the case's GPU is visible
        visible = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
        changes["CUDA_VISIBLE_DEVICES"] = visible[int(index)] if int(index) < len(visible) else index
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        answer = Path(folder, "cell.json")
        child = subprocess.run(  # nosec B603  # this interpreter; the case is its input
            [sys.executable, "-m", "tbmem.estimator.sweep", str(answer), str(path.absolute())],
            input=msgspec.json.encode(case),
            check=False,
            env=child_environment(**changes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if answer.exists():
            return msgspec.json.decode(answer.read_bytes(), type=SweepCell)
    if child.returncode == -9:
        return SweepCell(case=case, status=Status.OUT_OF_MEMORY, note="the system ended the process (killed)")
    words = child.stderr.decode(errors="replace").strip().splitlines()[-1:]
    note = ": ".join([f"the process ended with {child.returncode}", *words])
    return SweepCell(case=case, status=Status.FAILED, note=note)


class NullObserver:
    """Ignores what a training run reports."""

    def begin_step(self, step: int) -> None: ...  # noqa: D102
    def begin_phase(self, phase: Phase) -> None: ...  # noqa: D102
    def mark(self, tensor: Any, category: Category, module: str | None = None) -> None: ...  # noqa: D102


def run_cell(case: SweepCase, path: Path) -> SweepCell:
    """Measure one case.

    ``path`` is that of its recording: on CUDA a snapshot; on the CPU a timeline (``.npz``), or a pickle that
    pytorch.org/memory_viz opens.
    """
    try:
        bfloat16 = case.kind == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
        usable, note = usable_precision(case, bfloat16)
        torch.manual_seed(0)
        training = Training(usable.job(), make_workload(usable.job()), NullObserver())
        for number in range(case.warmup):
            training.step(number)
        peak, seconds = (_on_cpu if case.kind == "cpu" else _on_cuda)(training, case, path)
    except Exception as error:
        if is_out_of_memory(error):
            return SweepCell(case=case, status=Status.OUT_OF_MEMORY, note=first_line(error))
        return SweepCell(case=case, status=Status.FAILED, note=described(error))
    return SweepCell(case=case, status=Status.MEASURED, measured=peak, seconds=seconds, file=path.name, note=note)


def usable_precision(case: SweepCase, bfloat16: bool) -> tuple[SweepCase, str]:
    """The case in a precision that the device supports, and a sentence if it was changed."""
    if case.precision != "bf16" or bfloat16:
        return case, ""
    return replace(case, precision="fp16"), "This device has no bf16: fp16 is used instead."


def _run_steps(training: Training, case: SweepCase) -> float:
    """Run the measured steps; returns seconds per step."""
    began = time.perf_counter()
    for number in range(case.steps):
        training.step(case.warmup + number)
    return (time.perf_counter() - began) / case.steps


def _on_cuda(training: Training, case: SweepCase, path: Path, cuda: Any = torch.cuda) -> tuple[MemoryPeak, float]:
    history = MemoryHistory(cuda.memory, _MAX_ENTRIES)
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
    return _recorded_peak(analyze(read_snapshot(path)), allocated, reserved), seconds


def _on_cpu(training: Training, case: SweepCase, path: Path) -> tuple[MemoryPeak, float]:
    storages = (tensor.untyped_storage() for tensor in training.held())
    # shared storages count once
    held = sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        trace = Path(folder, "steps.json")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            seconds = _run_steps(training, case)
        profiler.export_chrome_trace(str(trace))
        counted = read_trace(trace)
    device = counted.device_number("cpu")
    allocated = held + counted.peak(device).bytes - counted.devices[device].base_bytes
    run = _counted_step(training, case.warmup + case.steps)
    timeline = timeline_of_run(run, about={"case": asdict(case)}, source="count")
    with atomic_write(path) as partial:
        if path.suffix in _PICKLES:
            partial.write_bytes(memory_viz_pickle(analyze(timeline, name=path.stem)))
        else:
            save_timeline(timeline, partial)
    return replace(peak_of_run(run), allocated=allocated), seconds


def _counted_step(training: Training, number: int) -> SimulatedRun:
    """Run one more step on real tensors, and track its allocations with module and source lines."""
    tracker = AllocationTracker(training.job.device)
    with tracker, tracker.modules:
        for tensor in training.held():
            tracker.adopt(tensor)
        training.watch(tracker)
        tracker.modules.register_names(training.model, type(training.model).__name__)
        training.step(number)
        tracker.log.phase = Phase.OTHER
        training.observer = NullObserver()
    return tracker.log.run((), {"device": training.job.device})


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


def _large_allocation(run: SimulatedRun, row: int) -> LargeAllocation:
    module, stack = int(run.module[row]), int(run.stack[row])
    return LargeAllocation(
        bytes=int(run.size[row]),
        category=Category(int(run.category[row])).name.lower(),
        what=run.modules[module] if module >= 0 else run.operators[int(run.operator[row])],
        line=short(run.stacks[stack][0]) if stack >= 0 else "",
    )


def _recorded_peak(analysis: Analysis, allocated: int, reserved: int) -> MemoryPeak:
    """The peak of a recording; ``allocated`` and ``reserved`` are the device's own counters, in bytes."""
    device = analysis.main
    shares = {share.name.lower(): share for share in device.by_category}
    activation = shares.get(Category.ACTIVATION.name.lower())
    return MemoryPeak(
        allocated=allocated,
        reserved=reserved,
        phase=device.peak.phase.lower(),
        parts={name: share.bytes for name, share in shares.items() if share.bytes},
        largest=tuple(
            LargeAllocation(
                bytes=row.bytes, category=row.category.lower(), what=row.module or row.operator, line=row.line
            )
            for row in [row for row in device.top if row.alloc_event >= 0][:_LARGEST]
        ),
        activations=(activation.max_bytes or 0) if activation is not None else 0,
    )


def main(answer: str, recording: str) -> None:
    """Measure the case on standard input."""
    cell = run_cell(msgspec.json.decode(sys.stdin.buffer.read(), type=SweepCase), Path(recording))
    with atomic_write(Path(answer)) as partial:
        partial.write_bytes(msgspec.json.encode(cell))


if __name__ == "__main__":
    main(*sys.argv[1:])
