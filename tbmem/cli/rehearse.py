"""The command `tbmem rehearse`: runs an unmodified script on simulated GPUs and tells whether it fits."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tbmem.cli import run
from tbmem.cli.arguments import AsJson
from tbmem.errors import UsageError

_FLAGS = {"--json", "--help"}
GpuName = Annotated[str, typer.Option(help="h100-80gb, a100-40gb, t4, ..., or a size: 12GiB.")]
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
    from tbmem.api.rehearse import rehearse
    from tbmem.present.text.rehearsal import trial_line

    options: dict[str, Any] = {"gpu": gpu, "gpus": gpus, "steps": steps, "logdir": logdir}
    options |= {"world_size": world_size, "rank": rank}
    if not context.obj:
        raise UsageError("no script to rehearse: tbmem rehearse [OPTIONS] -- script.py [ARGS]...")
    rehearsed = inspect.unwrap(rehearse)  # whose errors name the command's options
    if largest is not None:
        shown = None if as_json else lambda name, trial: typer.echo(trial_line(name, trial))
        answer = rehearsed(*context.obj, **options, largest=largest, on_trial=shown)
        typer.echo(answer.to_json() if as_json else str(answer))
        raise typer.Exit(0 if answer.value is not None else 1)
    result = rehearsed(*context.obj, **options, output=sys.stderr if as_json else None)
    typer.echo(result.to_json() if as_json else str(result))
    raise typer.Exit(0 if result.fits else 1)
