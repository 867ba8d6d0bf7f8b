"""The command ``tbmem run``: an unmodified script under the callback."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tbmem.cli.arguments import ConfigFile, Logdir, Overrides
from tbmem.cli.launch import LaunchSpec, Runnable, split

_STEP_ON = "Optimizer whose steps are counted: first, 2 (the second), a class's name, or each."


class RunCommand(TyperCommand):
    """A command line that ends with a program's own arguments."""

    divide = staticmethod(split)
    """Arguments of tbmem and of the program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse only the arguments of tbmem."""
        options, ctx.obj = self.divide(args)
        return super().parse_args(ctx, options)


def command(
    context: typer.Context,
    config: ConfigFile = None,
    overrides: Overrides = None,
    logdir: Logdir = None,
    step_on: Annotated[str, typer.Option(metavar="OPTIMIZER", help=_STEP_ON)] = "first",
) -> Runnable:
    """Run an unmodified script (or -m MODULE) under the callback: `tbmem run -- script.py ARGS`."""
    return LaunchSpec(context.obj, overrides or (), config, logdir, step_on).prepare()
