"""Cases go in; each is predicted, then really run in a process of its own, and its cell comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tbmem.analysis.sweep import predicted_moment
from tbmem.errors import UsageError
from tbmem.model.fake_run import FakeRun
from tbmem.model.files import TIMELINE_SUFFIX
from tbmem.model.gpus import Gpu
from tbmem.model.sweep import ModelFacts, Moment, Status, Sweep, SweepCase, SweepCell, stems
from tbmem.sources.fake.decoder import SHAPES
from tbmem.sources.fake.parent import fake_runs
from tbmem.sources.host import HostMemory
from tbmem.units import format_bytes

Measure = Callable[[SweepCase, Path], SweepCell]
Prediction = Moment | UsageError
"""What is expected of a case, or why nothing can be."""


def sweep(
    cases: Sequence[SweepCase],
    folder: Path,
    *,
    gpu: Gpu | None = None,
    file: Path | None = None,
    measure: Measure | None = None,
    on_cell: Callable[[SweepCell, Sweep], None] | None = None,
) -> Sweep:
    """Measure all cases.

    Args:
        cases: What to measure.
        folder: Where recordings go; made if missing.
        gpu: The device, if it is one.
        file: Where the recording of the only case goes instead.
        measure: Measures a case; by default in a process of its own.
        on_cell: Told of each cell when it is done, with the sweep as far as it is: what is kept of that is not lost
            when a later cell is interrupted.

    Raises:
        UsageError: There is no such model, a case means nothing, or nothing can be written where it was asked for.
    """
    check_sweep(cases, folder, file)
    chosen = dict.fromkeys(cases)
    predictions = _predictions(_with_partners(chosen), gpu)
    partners = [
        SweepCell(case=case, status=Status.PREDICTED, predicted=found)
        for case, found in predictions.items()
        if case not in chosen and isinstance(found, Moment)
    ]
    so_far = Sweep(
        device=gpu.name if gpu is not None else "cpu",
        cells=tuple(partners),
        models={case.size: facts_of(case.size) for case in chosen},
    )
    measure = measure or measure_in_child
    cells: list[SweepCell] = []
    for case, stem in zip(chosen, stems(tuple(chosen)), strict=True):
        path = file or folder / (f"{stem}_snapshot.pickle" if case.kind == "cuda" else f"{stem}{TIMELINE_SUFFIX}")
        cell = _cell(case, path, predictions[case], measure)
        cells.append(cell)
        so_far = replace(so_far, cells=(*cells, *partners))
        if on_cell is not None:
            on_cell(cell, so_far)
    return so_far


def check_sweep(cases: Sequence[SweepCase], folder: Path, file: Path | None = None) -> None:
    """Before hours of work: whether there are such models, and their results can be written; makes the folder.

    Args:
        cases: What to measure.
        folder: Where recordings go.
        file: Where the recording of the only case goes instead.

    Raises:
        UsageError: There is no such model, or nothing can be written where it was asked for.
    """
    for case in cases:
        _check_model(case)
    _check_output(folder if file is None else file.parent, file)


def _check_model(case: SweepCase) -> None:
    shape = SHAPES.get(case.size.lower())
    if shape is None:
        raise UsageError(f"--model-size {case.size}: there are {', '.join(SHAPES)}")
    if not shape.llama and case.context > shape.context:
        raise UsageError(
            f"--context-length {case.context}: {case.size} has learnt positions for {shape.context} tokens only"
        )


def _check_output(folder: Path, file: Path | None) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UsageError(f"--output {folder}: a file is in the way; name a folder, or of one run a .pickle") from None
    except OSError as error:
        raise UsageError(f"--output {folder}: {error.strerror}; name a folder that can be written") from error
    if file is not None and file.is_dir():
        raise UsageError(f"--output {file}: is a folder; a name that ends so is that of a file")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"--output {folder}: cannot be written; name another folder")


def _with_partners(cases: Sequence[SweepCase] | dict[SweepCase, None]) -> list[SweepCase]:
    """With what mixed precision is compared to, where it is not measured: it is predicted at least."""
    partners = [case.in_precision("fp32") for case in cases if case.precision != "fp32"]
    return list(dict.fromkeys([*cases, *partners]))


def _cell(case: SweepCase, path: Path, predicted: Prediction, measure: Measure) -> SweepCell:
    if isinstance(predicted, UsageError):
        cell = measure(case, path)
        return replace(cell, note="; ".join(filter(None, [cell.note, f"no prediction: {predicted}"])))
    if case.kind == "cpu" and (note := _too_much(predicted)):
        return SweepCell(case=case, status=Status.OUT_OF_MEMORY, predicted=predicted, note=note)
    return replace(measure(case, path), predicted=predicted)


def _too_much(predicted: Moment) -> str:
    """Why a case is not even begun: a machine without memory kills other programs as well."""
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
    outcomes = fake_runs(jobs, timeout=600.0 + 60 * len(jobs))
    return {
        case: predicted_moment(job, outcome, gpu) if isinstance(outcome, FakeRun) else outcome
        for case, job, outcome in zip(cases, jobs, outcomes, strict=True)
    }


def measure_in_child(case: SweepCase, path: Path) -> SweepCell:
    """Run a case in a process of its own, which may be ended for want of memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        answer = Path(folder, "cell.json")
        child = subprocess.run(
            [sys.executable, "-m", "tbmem.runtime.sweep_child", str(answer)],
            input=json.dumps({"case": asdict(case), "path": str(path.absolute())}),
            text=True,
            check=False,
            env=_environment(case),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if answer.exists():
            return SweepCell.from_json(answer.read_text())
    if child.returncode == -9:
        return SweepCell(case=case, status=Status.OUT_OF_MEMORY, note="the system ended the process (killed)")
    words = child.stderr.strip().splitlines()[-1:]
    note = ": ".join([f"the process ended with {child.returncode}", *words])
    return SweepCell(case=case, status=Status.FAILED, note=note)


def _environment(case: SweepCase) -> dict[str, str]:
    """This process's, with one GPU at most to be seen."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_paths())}
    index = case.device.partition(":")[2]
    if index:
        seen = [one for one in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if one]
        environment["CUDA_VISIBLE_DEVICES"] = seen[int(index)] if int(index) < len(seen) else index
    return environment


def _paths() -> Iterator[str]:
    yield str(Path(__file__).parents[2])
    yield from filter(None, [os.environ.get("PYTHONPATH")])


def facts_of(size: str) -> ModelFacts:
    """Numbers of a built-in model."""
    shape = SHAPES[size.lower()]
    return ModelFacts(
        size=size,
        parameters=shape.parameters,
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        inner=shape.inner,
        vocabulary=shape.vocabulary,
    )
