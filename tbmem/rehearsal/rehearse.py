"""Runs a program on simulated GPUs and tells whether it fits."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess  # nosec B404  # starts the user's program, without a shell
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from tbmem.errors import TbmemError, UsageError
from tbmem.model.gpus import Gpu
from tbmem.model.rehearsal import ComputedRead, DevicePeak, ProcessResult, Rehearsal
from tbmem.offline.analyze import analyze
from tbmem.rehearsal.environment import Order, rehearsal_environment, world_environment

_KILLED = -9
_PR_SET_PDEATHSIG = 1
_PATIENCE = 10
"""Seconds in which an interrupted program ends by itself."""
_LOOK_SECONDS = 1.0
_STILL_SECONDS = 20.0
"""A program that has a result and does nothing for so long waits for ever."""
_BUSY = 0.03
"""Share of a processor above which it does something."""
_MORE_MEMORY = 16
"""Times the GPU's memory on which a program that ran out of it is tried again, to see how much it needs."""
_NOTES = (
    "workspaces that cuDNN, cuSOLVER and cuFFT choose by their own heuristics count as 0 bytes: convolutions and"
    " recurrent networks can need more"
)


class Program(NamedTuple):
    """A program to rehearse, and on what."""

    words: Sequence[str]
    """A script with its arguments, ``-m`` and a module, or a launcher such as ``torchrun``."""
    gpu: Gpu
    gpus: int = 1
    steps: int = 3
    """Optimizer steps after which it is ended; 0: it ends by itself."""
    logdir: str = "runs"
    world_size: int = 0
    """0: the program starts all of its ranks itself."""
    rank: int = 0
    is_recorded: bool = True
    """Whether allocations are recorded, or peaks only."""
    title: str = ""
    """Name of it for people; by default its words."""

    @property
    def name(self) -> str:
        """Its first words, or its title."""
        return self.title or (self.words[0] if self.words[0] != "-m" else " ".join(self.words[:2]))

    @property
    def command(self) -> list[str]:
        """The command line that runs it in a process of its own.

        Raises:
            UsageError: There is no such script or launcher.
        """
        first = self.words[0]
        if first == "-m" or Path(first).is_dir() or (Path(first).is_file() and not os.access(first, os.X_OK)):
            return [sys.executable, *self.words]
        if first.endswith(".py"):
            if not Path(first).is_file():
                raise UsageError(f"{first}: no such script")
            return [sys.executable, *self.words]
        beside = shutil.which(first, path=str(Path(sys.executable).parent))
        found = beside or shutil.which(first)
        if found is None:
            raise UsageError(f"{first}: no such script or launcher")
        return [found, *self.words[1:]]


def run(program: Program, *, output: Any = None) -> Rehearsal:
    """Run a program; its own output goes to ``output``, a file as ``subprocess`` takes it, or the terminal."""
    if program.world_size and not 0 <= program.rank < program.world_size:
        raise UsageError(f"--rank {program.rank}: the ranks of {program.world_size} are 0 to {program.world_size - 1}")
    began = time.perf_counter()
    processes = _processes(program, output)
    result = Rehearsal(
        program=program.title or shlex.join(program.words),
        gpu=program.gpu.name,
        gpus=program.gpus,
        processes=processes,
        seconds=0.0,
        notes=_notes(program, processes),
    )
    result = _explained(result)
    needed = None if result.fits or not program.is_recorded else _needed(program)
    return replace(result, needed=needed, seconds=time.perf_counter() - began)


def _processes(program: Program, output: Any) -> tuple[ProcessResult, ...]:
    """Run a program and read what its processes have written, by rank."""
    command = program.command
    with tempfile.TemporaryDirectory(prefix="tbmem-rehearsal-") as name:
        folder = Path(name)
        environment = _environment(program, folder)
        # a session of its own: Ctrl-C reaches it once, through this process
        started = subprocess.Popen(  # nosec B603  # what the user asked to rehearse
            command, env=environment, stdout=output, stderr=output, start_new_session=True, preexec_fn=_end_with_parent
        )
        code = _wait(started, folder / "results")
        processes = tuple(sorted(map(_read_result, folder.glob("results/*.json")), key=lambda each: each.rank))
    _check_end(program, processes, code)
    return processes


def _needed(program: Program) -> int | None:
    """Bytes that the fullest device would need; ``None`` if that is more than can be tried."""
    gpu = replace(program.gpu, total=_MORE_MEMORY * program.gpu.total)
    with tempfile.TemporaryDirectory(prefix="tbmem-rehearsal-") as logdir:
        try:
            processes = _processes(
                program._replace(gpu=gpu, logdir=logdir, is_recorded=False), output=subprocess.DEVNULL
            )
        except UsageError:
            return None
    if any(process.out_of_memory for process in processes):
        return None
    return max(device.capacity - device.headroom for process in processes for device in process.devices)


def _environment(program: Program, folder: Path) -> dict[str, str]:
    alone = program.world_size > 0
    results, messages = folder / "results", folder / "messages"
    results.mkdir()
    messages.mkdir()
    gpus = max(program.gpus, min(program.world_size, 8))
    environment = rehearsal_environment(program.gpu, gpus, None if alone else messages)
    logdir = str(Path(program.logdir).expanduser().absolute())
    order = Order(program.steps, logdir, str(results), program.world_size, program.rank, program.is_recorded)
    environment.update(order.variable())
    if alone:
        environment.update(world_environment(program.rank, program.world_size))
    return environment


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent ends, however that does."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait(process: subprocess.Popen[bytes], results: Path) -> int:
    """Its exit code; a launcher that waits for words of workers that were ended after their steps is ended as well."""
    work, still_since = 0.0, time.monotonic()
    while True:
        try:
            return process.wait(timeout=_LOOK_SECONDS)
        except KeyboardInterrupt:
            _end(process, signal.SIGINT)
            raise
        except subprocess.TimeoutExpired:
            before, work = work, _processor_seconds(process.pid)
            if abs(work - before) > _BUSY * _LOOK_SECONDS or not any(results.iterdir()):
                still_since = time.monotonic()
            if time.monotonic() - still_since > _STILL_SECONDS:
                _end(process, signal.SIGKILL)  # a launcher would show a traceback for SIGTERM
                return 0


def _end(process: subprocess.Popen[bytes], sent: signal.Signals) -> None:
    os.killpg(process.pid, sent)
    try:
        process.wait(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _processor_seconds(pid: int) -> float:
    """What a process and those that it has started have used of the processors."""
    try:
        parent = psutil.Process(pid)
        times = [each.cpu_times() for each in (parent, *parent.children(recursive=True))]
    except psutil.Error:  # one has just ended
        return 0.0
    return sum(each.user + each.system for each in times)


def _read_result(path: Path) -> ProcessResult:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    values["devices"] = tuple(DevicePeak(**device) for device in values["devices"])
    values["snapshots"] = tuple(values["snapshots"])
    values["first_read"] = ComputedRead(**values["first_read"]) if values["first_read"] else None
    return ProcessResult(**values)


def _check_end(program: Program, processes: Sequence[ProcessResult], code: int) -> None:
    """Raise UsageError if the program ended without using a GPU, or by a failure that is not for want of its memory."""
    name = program.name
    if any(process.out_of_memory for process in processes):
        return
    if code == _KILLED:
        raise UsageError(f"{name}: killed, as the kernel does when the host's memory runs out; try a smaller model")
    if code:
        hint = _read_of(processes)
        because = f"; it may be for this: {hint}" if hint else ""
        raise UsageError(f"{name}: the program failed by itself, with exit code {code}; its message is above{because}")
    if not any(process.devices for process in processes):
        raise UsageError(f"{name}: the program ended without using a GPU, so there is nothing to tell")


def _notes(program: Program, processes: Sequence[ProcessResult]) -> tuple[str, ...]:
    notes = []
    steps = min((process.steps for process in processes), default=0)
    if any(process.out_of_memory for process in processes):
        return (_NOTES,)
    if not steps:
        notes.append("no optimizer stepped: these are the peaks of the whole program")
    elif 0 < steps < program.steps:
        notes.append(f"the program ended by itself after {steps} optimizer steps")
    if read := _read_of(processes):
        notes.append(read)
    if any(device.retries for process in processes for device in process.devices):
        notes.append("the allocator had to give its cache back to go on, which is slow")
    return (*notes, _NOTES)


def _read_of(processes: Sequence[ProcessResult]) -> str:
    """A sentence about the first line that read what a GPU would have computed, if one did."""
    for process in processes:
        if read := process.first_read:
            return (
                f"nothing is computed on the device: {read.file}:{read.line} was the first line to read such a value,"
                f" as zero (what depends on it may need another amount of memory): {read.code}"
            )
    return ""


def _explained(result: Rehearsal) -> Rehearsal:
    """With what the highest peak is made of, from the recording of its process."""
    process, device = result.worst
    report = _report_of(process) if process.out_of_memory else ""
    if not process.snapshots:
        return replace(result, out_of_memory_report=report)
    if process.out_of_memory and not process.steps:
        return replace(result, out_of_memory_report=report)  # which tensors are parameters is known after a step
    try:
        analysis = analyze(process.snapshots[-1])
    except (TbmemError, OSError) as error:
        return replace(
            result, out_of_memory_report=report, notes=(*result.notes, f"the recording is not read: {error}")
        )
    found = next((each for each in analysis.devices if each.name == device.device), analysis.devices[0])
    return replace(
        result,
        phase=found.peak.phase,
        by_category={share.name: share.bytes for share in found.by_category if share.bytes},
        by_module={share.name: share.bytes for share in found.by_module if share.bytes},
        by_line={share.name: share.bytes for share in found.by_line if share.bytes},
        out_of_memory_report=report,
    )


def _report_of(process: ProcessResult) -> str:
    folder = Path(process.folder) if process.folder else None
    files = sorted(folder.glob("*.oom.txt")) if folder is not None else []
    return files[-1].read_text(encoding="utf-8").rstrip() if files else ""
