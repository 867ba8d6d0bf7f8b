"""The command ``tbmem demo``: a small training run under the callback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from tbmem.cli.arguments import AsJson, ConfigFile, Logdir, Overrides
from tbmem.cli.launch import with_logdir
from tbmem.config import load_config
from tbmem.demo import Fault
from tbmem.errors import UsageError, first_line

if TYPE_CHECKING:
    import torch

    from tbmem.config import Config
    from tbmem.model.run_summary import RunSummary

_SCHEDULE = ("profiling.repeat=2",)
"""A demo shows that windows repeat, unless a configuration is given."""


def command(
    config: ConfigFile = None,
    overrides: Overrides = None,
    logdir: Logdir = None,
    inject: Annotated[Fault | None, typer.Option(help="Inject a fault to see its warning.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 60,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...; by default the accelerator.")] = None,
    as_json: AsJson = False,
) -> None:
    """Train a small language model for a minute under the callback."""
    schedule = _SCHEDULE if config is None else ()
    settings = load_config(config, with_logdir([*schedule, *(overrides or ())], logdir))
    summary = _train(settings, steps, inject, _device(device))
    if as_json:
        from tbmem.present.text.run_end import summary_view

        typer.echo(json.dumps(summary_view(summary) if summary is not None else None, indent=2))


def _train(settings: Config, steps: int, inject: Fault | None, device: torch.device | None) -> RunSummary | None:
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from tbmem.demo.training import run_demo

    # so small a model gains nothing from more threads, and is slowed down by them on a busy machine
    torch.set_num_threads(1)

    console = Console(stderr=True)
    loss = TextColumn("loss {task.fields[loss]:.3f}")
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), loss, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("training", total=steps, loss=float("nan"))

        def show(number: int, loss: float) -> None:
            progress.update(task, completed=number, loss=loss)

        shared = console if console.is_terminal else None  # lines share the terminal with the progress bar
        return run_demo(settings, steps=steps, fault=inject, device=device, console=shared, on_step=show)


def _device(name: str | None) -> torch.device | None:
    if name is None:
        return None
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"--device {name}: cannot be used here: {first_line(error)}") from error
    return device
