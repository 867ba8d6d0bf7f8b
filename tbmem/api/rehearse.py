"""Runs a program or a function on simulated GPUs, in a process of its own, and tells whether it fits."""

from __future__ import annotations

import subprocess  # nosec B404  # only its errors and types
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, overload

from tbmem.api.parameter_names import names_parameters
from tbmem.api.results import Largest, Rehearsal, as_result
from tbmem.errors import UsageError
from tbmem.model import rehearsal
from tbmem.model.gpus import gpu_named
from tbmem.model.rehearsal import Trial
from tbmem.rehearsal import rehearse as engine
from tbmem.rehearsal.function import name_of, written_call
from tbmem.rehearsal.largest import Range, find_largest, substituted
from tbmem.rehearsal.rehearse import Program

Output = int | IO[Any] | None
"""Where a program's own output goes: a file as ``subprocess`` takes it; ``None`` for the terminal."""


@overload
def rehearse(
    program: str | Callable[..., Any],
    *arguments: Any,
    kwargs: Mapping[str, Any] | None = None,
    gpu: str = "h100-80gb",
    gpus: int = 1,
    steps: int = 3,
    logdir: str = "runs",
    world_size: int = 0,
    rank: int = 0,
    largest: None = None,
    output: Output = None,
    on_trial: None = None,
) -> Rehearsal: ...


@overload
def rehearse(
    program: str | Callable[..., Any],
    *arguments: Any,
    kwargs: Mapping[str, Any] | None = None,
    gpu: str = "h100-80gb",
    gpus: int = 1,
    steps: int = 3,
    logdir: str = "runs",
    world_size: int = 0,
    rank: int = 0,
    largest: str,
    output: Output = None,
    on_trial: Callable[[str, Trial], object] | None = None,
) -> Largest: ...


@names_parameters
def rehearse(
    program: str | Callable[..., Any],
    *arguments: Any,
    kwargs: Mapping[str, Any] | None = None,
    gpu: str = "h100-80gb",
    gpus: int = 1,
    steps: int = 3,
    logdir: str = "runs",
    world_size: int = 0,
    rank: int = 0,
    largest: str | None = None,
    output: Output = None,
    on_trial: Callable[[str, Trial], object] | None = None,
) -> Rehearsal | Largest:
    """Run a program on simulated GPUs, without a GPU, and measure its memory, as ``tbmem rehearse`` does.

    Args:
        program: An unmodified script, ``'-m'`` before a module, a launcher such as ``'torchrun'``; or a function, which
            is called in a process of its own: what it changes stays there.
        *arguments: Those of the program (``'--batch-size', '8'``), or of the function.
        kwargs: Keyword arguments of the function.
        gpu: Name of the GPU, as ``'h100-80gb'``.
        gpus: Number of GPUs that each process sees.
        steps: Optimizer steps after which the program is ended; 0: it ends by itself.
        logdir: Folder for the run folder with the recording.
        world_size: Number of ranks of which one process alone is ``rank``; 0: the program starts its ranks itself.
        rank: Rank of that process.
        largest: Find the largest value of an argument that fits: ``'batch_size=1..256'``.
        output: File for what the program prints, as ``subprocess`` takes it; by default the terminal.
        on_trial: With ``largest``: called with the argument's name and each trial.

    Returns:
        Peaks in bytes of each process and device, and what the highest consists of; with ``largest`` the largest value
        that fits, with its rehearsal in ``result``.

    Raises:
        UsageError: What is needed is not installed, there is no such program or GPU, or the program failed by itself.
    """
    if not 1 <= gpus <= 64:
        raise UsageError(f"gpus is {gpus}; from 1 to 64 can be simulated")
    if steps < 0 or world_size < 0:
        raise UsageError("steps and world_size are numbers from 0 on")
    with _words(program, arguments, kwargs or {}, largest) as (words, title):
        ordered = Program(words, gpu_named(gpu), gpus, steps, logdir, world_size, rank, title=title)
        if largest is None:
            return as_result(Rehearsal, engine.run(ordered, output=output))
        return _largest(ordered, largest, on_trial)


@contextmanager
def _words(
    program: str | Callable[..., Any], arguments: tuple[Any, ...], kwargs: Mapping[str, Any], largest: str | None
) -> Iterator[tuple[list[str], str]]:
    """Words of the command line, and the name of a function that they call."""
    if isinstance(program, str):
        if kwargs:
            raise UsageError("kwargs belong to a function; a program's arguments are words: '--batch-size', '8'")
        yield [program, *map(str, arguments)], ""
        return
    if not callable(program):
        raise UsageError(f"a {type(program).__name__} cannot be rehearsed; give a script, or a function")
    with written_call(program, arguments, kwargs) as words:
        place = [] if largest is None else [f"{Range.parse(largest).name}={{}}"]
        yield [*words, *place], f"{name_of(program)}()"


def _largest(program: Program, wanted: str, on_trial: Callable[[str, Trial], object] | None) -> Largest:
    answer: rehearsal.Largest | None = None
    with TemporaryDirectory(prefix="tbmem-rehearsal-") as logdir:
        trial = program._replace(logdir=logdir, is_recorded=False)
        for answer in find_largest(program.words, Range.parse(wanted), lambda words: _quiet(trial, words)):
            if on_trial is not None:
                on_trial(answer.name, answer.trials[-1])
    assert answer is not None, "a range has a value"  # nosec B101  # for the type checker
    if answer.value is None:
        return as_result(Largest, answer)
    words = substituted(program.words, answer.name, answer.value)
    result = engine.run(program._replace(words=words), output=subprocess.DEVNULL)
    return as_result(Largest, replace(answer, result=as_result(Rehearsal, result)))


def _quiet(program: Program, words: list[str]) -> rehearsal.Rehearsal:
    """Rehearse; what the program prints is shown only if it fails by itself."""
    with TemporaryFile() as printed:
        try:
            return engine.run(program._replace(words=words), output=printed)
        except UsageError:
            printed.seek(0)
            sys.stderr.write(printed.read().decode(errors="replace"))
            raise
