"""The command `tbmem rehearse`: runs an unmodified script on simulated GPUs and tells whether it fits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from tempfile import TemporaryDirectory, TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from tbmem.cli import run
from tbmem.cli.arguments import AsJson
from tbmem.errors import UsageError

if TYPE_CHECKING:
    from tbmem.model.rehearsal import Rehearsal
    from tbmem.rehearsal.rehearse import Program

_FLAGS = {"--json", "--help"}
GpuName = Annotated[str, typer.Option(help="h100-80gb, a100-40gb, t4, ...")]
Gpus = Annotated[int, typer.Option(min=1, max=64, help="GPUs that each process sees.")]
World = Annotated[int, typer.Option(min=0, help="Ranks of which one process alone is --rank; 0: the program's own.")]
Rank = Annotated[int, typer.Option(min=0, help="Rank of that process.")]
Steps = Annotated[int, typer.Option(min=0, help="Optimizer steps after which it is ended; 0: it ends by itself.")]
Largest = Annotated[
    str | None,
    typer.Option(metavar="ARG=LOW..HIGH", help="Find the largest value of an argument of the script that fits."),
]
Logdir = Annotated[str, typer.Option(metavar="DIR", help="Folder for the run folder with the recording.")]


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments of tbmem and of the program, which begins after ``--`` or at the first word that is no option."""
    if "--" in words:
        position = words.index("--")
        return list(words[:position]), list(words[position + 1 :])
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] not in ("-m", "-"):
        position += 1 if words[position] in _FLAGS or "=" in words[position] else 2
    return list(words[:position]), list(words[position:])


class RunCommand(run.RunCommand):
    """A command line that ends with a program's own arguments."""

    divide = staticmethod(_split)


def command(
    context: typer.Context,
    gpu: GpuName = "h100-80gb",
    gpus: Gpus = 1,
    world_size: World = 0,
    rank: Rank = 0,
    steps: Steps = 3,
    largest: Largest = None,
    logdir: Logdir = "runs",
    as_json: AsJson = False,
) -> None:
    """Run an unmodified script on simulated GPUs and tell whether it fits: `tbmem rehearse -- train.py`."""
    from tbmem.model.gpus import gpu_named
    from tbmem.present.text.rehearsal import rehearsal_lines, rehearsal_view
    from tbmem.rehearsal import rehearse

    program = rehearse.Program(context.obj, gpu_named(gpu), gpus, steps, logdir, world_size, rank)
    if largest is not None:
        _find_largest(program, largest, as_json)
        return
    result = rehearse.run(program, output=sys.stderr if as_json else None)
    typer.echo(json.dumps(rehearsal_view(result), indent=2) if as_json else "\n".join(rehearsal_lines(result)))
    raise typer.Exit(0 if result.fits else 1)


def _find_largest(program: Program, wanted: str, as_json: bool) -> None:
    from tbmem.present.text.rehearsal import largest_lines, largest_view, trial_line
    from tbmem.rehearsal import rehearse
    from tbmem.rehearsal.largest import Range, find_largest, substituted

    with TemporaryDirectory(prefix="tbmem-rehearsal-") as logdir:
        trial = program._replace(logdir=logdir, is_recorded=False)
        for answer in find_largest(program.words, Range.parse(wanted), lambda words: _quiet(trial, words)):
            if not as_json:
                typer.echo(trial_line(answer.name, answer.trials[-1]))
    if answer.value is not None:
        words = substituted(program.words, answer.name, answer.value)
        answer = replace(answer, result=rehearse.run(program._replace(words=words), output=subprocess.DEVNULL))
    typer.echo(json.dumps(largest_view(answer), indent=2) if as_json else "\n".join(largest_lines(answer)))
    raise typer.Exit(0 if answer.value is not None else 1)


def _quiet(program: Program, words: list[str]) -> Rehearsal:
    """Rehearse; what the program prints is shown only if it fails by itself."""
    from tbmem.rehearsal import rehearse

    with TemporaryFile() as printed:
        try:
            return rehearse.run(program._replace(words=words), output=printed)
        except UsageError:
            printed.seek(0)
            sys.stderr.write(printed.read().decode(errors="replace"))
            raise
