"""Runs a command, with exit code 0 for success, 1 for a failed check, 2 for wrong input and 130 if interrupted."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from tbmem.cli.launch import Launch, Runnable
from tbmem.errors import TbmemError
from tbmem.sources.gc_pause import gc_paused

_INTERRUPTED = 130

_COMMANDS = {
    "demo": "Train a small language model for a minute and see what tbmem shows.",
    "watch": "Watch the memory of running or finished runs; ends with the run, or with Ctrl-C.",
    "estimate": "Tell whether a training will fit, and what its memory goes to, before there is a GPU.",
    "sweep": "Run a model at several sizes, measure its memory, and put beside it what `tbmem estimate` predicts.",
    "analyze": "Say what memory snapshots and profiler traces mean: peak, categories, fragmentation, leaks, advice.",
    "compare": "Say what grew from A to B, by category, module and line.",
    "report": "Say what happened in a run: memory over the steps, findings, windows and what they recorded.",
    "export": "Turn a recording into a file for another tool, and print the file's name.",
    "check": "Hold a run against limits; exit 0 if all hold, 1 if one does not, 2 if the input is wrong.",
    "config": "Print the merged configuration and where each value came from, as YAML that can be used as a file.",
    "run": "Run an unmodified script (or -m MODULE) under the callback: `tbmem run -- script.py ARGS`.",
}
"""First lines of the commands' docstrings: the list of commands loads none of them."""


class _Commands(TyperGroup):
    """Commands that are imported only when they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=summary) for name, summary in _COMMANDS.items()}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands; garbage collections while rich is imported take a tenth of the time."""
        with gc_paused():
            super().format_help(ctx, formatter)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that is called."""
        name, _, rest = super().resolve_command(ctx, args)
        module = import_module(f"tbmem.cli.{name}")
        command = typer.Typer(add_completion=False)
        command.command(name, cls=getattr(module, "RunCommand", None))(module.command)
        return name, typer.main.get_command(command), rest


app = typer.Typer(
    cls=_Commands,
    help="Memory that explains itself: watch, profile and judge the memory of PyTorch training.",
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from tbmem import __version__

        typer.echo(f"tbmem {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    del version


def main() -> None:
    """Run a command, or the program that `tbmem run` was given."""
    hook = sys.excepthook
    program = _command()
    sys.excepthook = hook
    program.run()


def _command() -> Runnable:
    """Run a command, and turn an error into a line and an exit code."""
    try:
        # newer typers return an exit code, older ones raise
        code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except Launch as launch:
        # run outside of the try, so that its exceptions, exit code and Ctrl-C are handled as if it ran alone
        return launch.program
    except (KeyboardInterrupt, typer.Abort):
        code = _INTERRUPTED
    except TbmemError as error:
        _end(str(error), 2)
    except OSError as error:
        if error.filename is None:
            raise
        _end(f"{error.filename}: {error.strerror}", 2)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        # typer's own: an unknown option or command, a value that does not fit
        _end(f"{error.format_message().rstrip('.')}; see tbmem --help", 2)
    if code == _INTERRUPTED:
        _end("interrupted", code)
    sys.exit(code)


def _end(message: str, code: int) -> NoReturn:
    line = " ".join(message.split())
    print(f"tbmem: {line}", file=sys.stderr)
    sys.exit(code)
