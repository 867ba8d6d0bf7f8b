"""Runs a sweep: predicts each case, measures it in a child process, and writes the tables."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import msgspec

from tbmem.errors import UsageError
from tbmem.estimator.sweep_case import predicted_peak
from tbmem.estimator.worker import child_environment, simulate_jobs
from tbmem.estimator.workload.decoder import SHAPES
from tbmem.model.files import TIMELINE_SUFFIX, atomic_write
from tbmem.model.gpus import Gpu
from tbmem.model.simulated_run import SimulatedRun
from tbmem.model.sweep import MemoryPeak, ModelFacts, Status, Sweep, SweepCase, SweepCell, file_stems
from tbmem.present.text.sweep import activation_text, largest_text, peak_table, precision_table
from tbmem.sources.counters.host import HostMemory
from tbmem.units import format_bytes

Prediction = MemoryPeak | UsageError
"""The predicted peak of a case, or why there is none."""
_FILES = (".pickle", ".pkl", ".npz")
_TEXTS = {
    "peak_memory_summary.txt": peak_table,
    "mixed_precision_memory_summary.txt": precision_table,
    "activation_size_analysis.txt": activation_text,
    "largest_allocations.txt": largest_text,
}


def sweep(
    cases: Sequence[SweepCase],
    output: Path,
    *,
    gpu: Gpu | None = None,
    notes: tuple[str, ...] = (),
    on_cell: Callable[[SweepCell], None] | None = None,
) -> Sweep:
    """Measure all cases; the tables are rewritten after each of them.

    Args:
        cases: Cases to measure.
        output: Folder of tables and recordings, created if missing; or the recording's file for a single case.
        gpu: The device; ``None`` for the CPU.
        notes: Sentences for the tables.
        on_cell: Called with each cell after the tables are written.

    Raises:
        UsageError: There is no such model, a case is invalid, or the output cannot be written.
    """
    for case in cases:
        _check_model(case)
    unique = tuple(dict.fromkeys(cases))
    folder = tables_folder(output)
    if folder is None and len(unique) > 1:
        raise UsageError(f"--output {output}: {len(unique)} runs cannot share a file; name a folder")
    _check_output(output)
    predictions = _predictions(unique, gpu)
    models = {case.size: model_facts(case.size) for case in unique}
    result = Sweep(device=gpu.name if gpu is not None else "cpu", cells=(), models=models, notes=notes)
    for case, stem in zip(unique, file_stems(unique), strict=True):
        path = output
        if folder is not None:
            path = folder / (f"{stem}_snapshot.pickle" if case.kind == "cuda" else f"{stem}{TIMELINE_SUFFIX}")
        cell = _cell(case, path, predictions[case])
        result = replace(result, cells=(*result.cells, cell))
        if folder is not None:
            _write(result, folder)
        if on_cell is not None:
            on_cell(cell)
    return result


def tables_folder(output: Path) -> Path | None:
    """Folder of the tables; ``None`` if ``output`` is the file of a recording."""
    return None if output.suffix in _FILES else output


def render_tables(sweep: Sweep) -> dict[str, str]:
    """Each table by its file name; mixed precision only if a case uses it."""
    mixed = any(cell.case.precision != "fp32" for cell in sweep.cells)
    return {name: "\n".join(lines(sweep)) for name, lines in _TEXTS.items() if mixed or lines is not precision_table}


def to_json(sweep: Sweep) -> str:
    """The sweep as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(sweep), indent=2).decode()


def _write(sweep: Sweep, folder: Path) -> None:
    contents = {**{name: f"{text}\n" for name, text in render_tables(sweep).items()}, "sweep.json": to_json(sweep)}
    for name, text in contents.items():
        with atomic_write(folder / name) as partial:
            partial.write_text(text)


def _check_model(case: SweepCase) -> None:
    shape = SHAPES.get(case.size.lower())
    if shape is None:
        raise UsageError(f"--model-size {case.size}: there are {', '.join(SHAPES)}")
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


def _cell(case: SweepCase, path: Path, predicted: Prediction) -> SweepCell:
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


def _predictions(cases: Sequence[SweepCase], gpu: Gpu | None) -> dict[SweepCase, Prediction]:
    jobs = [case.job() for case in cases]
    if gpu is not None:
        jobs = [replace(job, capability=gpu.capability, total=gpu.total) for job in jobs]
    outcomes = simulate_jobs(jobs, timeout=600.0 + 60 * len(jobs))
    return {
        case: predicted_peak(job, outcome, gpu) if isinstance(outcome, SimulatedRun) else outcome
        for case, job, outcome in zip(cases, jobs, outcomes, strict=True)
    }


def measure_in_child(case: SweepCase, path: Path) -> SweepCell:
    """Run a case in a child process, which may be killed when memory runs out."""
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        answer = Path(folder, "cell.json")
        child = subprocess.run(
            [sys.executable, "-m", "tbmem.estimator.sweep_case", str(answer), str(path.absolute())],
            input=msgspec.json.encode(case),
            check=False,
            env=_environment(case),
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


def _environment(case: SweepCase) -> dict[str, str]:
    """The child's environment, in which only the case's GPU is visible."""
    index = case.device.partition(":")[2]
    if not index:
        return child_environment()
    seen = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    return child_environment(CUDA_VISIBLE_DEVICES=seen[int(index)] if int(index) < len(seen) else index)


def model_facts(size: str) -> ModelFacts:
    """Dimensions of a built-in model."""
    shape = SHAPES[size.lower()]
    numbers = {field.name: getattr(shape, field.name) for field in fields(ModelFacts) if field.name != "size"}
    return ModelFacts(size=size, **numbers)
