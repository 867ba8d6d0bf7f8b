"""Parser of the command line: the commands by name, each imported only when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tbmem.cli.launch import Runnable
from tbmem.errors import UsageError

_INTERRUPTED = 130

COMMANDS = {
    "demo": "Train a small language model for a minute under the callback.",
    "watch": "Show the memory of running or finished runs, until the run ends or Ctrl-C is pressed.",
    "estimate": "Estimate the memory of a training run before it starts, without a GPU.",
    "rehearse": "Run an unmodified script on simulated GPUs and tell whether it fits: `tbmem rehearse -- train.py`.",
    "sweep": "Measure a model's memory at several sizes and compare it with what `tbmem estimate` predicts.",
    "analyze": "Analyze memory snapshots and profiler traces: peak, categories, fragmentation, leaks, advice.",
    "compare": "Compare two runs or recordings: growth by category, module and line.",
    "report": "Write the report of a run: memory over the steps, findings, windows and their recordings.",
    "export": "Convert a recording to the format of another tool, and print the file's name.",
    "check": "Check a run against limits; exit code 0 if all hold, 1 if one does not, 2 if the input is wrong.",
    "config": "Print the merged configuration with the origin of each value, as a valid YAML configuration file.",
    "run": "Run an unmodified script (or -m MODULE) under the callback: `tbmem run -- script.py ARGS`.",
}
"""First lines of the commands' docstrings: the list of commands loads none of them."""


class _Commands(TyperGroup):
    """Commands that are imported only when they are called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, short_help=summary) for name, summary in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the command that is called."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, command_named(str(name)), rest


def command_named(name: str) -> Any:
    """The parser of a command, which is imported."""
    module = import_module(f"tbmem.cli.{name}")
    command = typer.Typer(add_completion=False, rich_markup_mode=None)
    command.command(name, cls=getattr(module, "RunCommand", None))(module.command)
    return typer.main.get_command(command)


app = typer.Typer(
    cls=_Commands,
    help="Monitor, profile and analyze the memory of PyTorch training runs.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # help texts without rich, whose import takes longer than all else
)


def _version(wanted: bool) -> None:
    if wanted:
        from tbmem import __version__

        typer.echo(f"tbmem {__version__}")
        raise typer.Exit


_Version = Annotated[
    bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def _options(version: _Version = False) -> None:
    del version


def title_of(words: list[str]) -> str:
    """The command of a command line, ``'tbmem estimate'``; ``'tbmem'`` where it names none."""
    return " ".join(["tbmem", *(word for word in words[:1] if word in COMMANDS)])


def run_command(words: list[str]) -> Runnable:
    """Run a command to the end of the process, or return the program of ``tbmem run``.

    Raises:
        UsageError: There is no such command or option, or a value does not fit.
    """
    hook = sys.excepthook  # typer replaces it
    try:
        result: Runnable | int | None = app(args=words, standalone_mode=False)
    except typer.Abort:
        result = _INTERRUPTED
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        message = _quoting_input(error).rstrip(".").replace(": Value error, ", ": ")
        end = "" if message.endswith("?") else "."
        raise UsageError(f"{message}{end} Try '{title_of(words)} --help'") from error
    finally:
        sys.excepthook = hook
    if result == _INTERRUPTED:
        raise KeyboardInterrupt
    if result is None or isinstance(result, int):
        sys.exit(result)
    return result


def _quoting_input(error: Any) -> str:
    """The message of the parser's error; that of a value of another type does not say which value it was."""
    message = str(error.format_message())
    mistakes: Any = getattr(error.__cause__, "errors", list)()  # pydantic's
    value = repr(mistakes[0]["input"]) if mistakes else ""
    if value in message:
        return message
    return message.split(", unable to parse")[0].replace("Invalid value for", f"Invalid value {value} for")
