"""The command ``tbmem run``: an unmodified script under the callback."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tbmem.cli.arguments import ConfigFile, Overrides
from tbmem.cli.launch import Launch, LaunchSpec, split


class RunCommand(TyperCommand):
    """A command line that ends with a program's own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse only the arguments of tbmem."""
        options, ctx.obj = split(args)
        return super().parse_args(ctx, options)


def command(
    context: typer.Context,
    config: ConfigFile = None,
    overrides: Overrides = None,
    logdir: Annotated[str | None, typer.Option(help="Folder for all runs; the same as run.logdir=.")] = None,
    step_on: Annotated[
        str,
        typer.Option(
            metavar="OPTIMIZER", help="Whose steps are the training's: first, 2 (the second), a class's name, or each."
        ),
    ] = "first",
) -> None:
    """Run an unmodified script (or -m MODULE) under the callback: `tbmem run -- script.py ARGS`."""
    order = LaunchSpec(
        words=context.obj, config=config, overrides=list(overrides or ()), logdir=logdir, step_on=step_on
    )
    raise Launch(order.prepare())
