"""Arguments go in, an exit code comes out: 0 fine, 1 a check failed, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer

from tbmem.cli import analyze, check, compare, config, demo, estimate, export, report, run, sweep, watch
from tbmem.cli.launch import Runnable
from tbmem.errors import TbmemError

_INTERRUPTED = 130

app = typer.Typer(
    help="Memory that explains itself: watch, profile and judge the memory of PyTorch training.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_COMMANDS = {
    "demo": demo,
    "watch": watch,
    "estimate": estimate,
    "sweep": sweep,
    "analyze": analyze,
    "compare": compare,
    "report": report,
    "export": export,
    "check": check,
    "config": config,
}
for name, module in _COMMANDS.items():
    app.command(name)(module.command)
app.command("run", cls=run.RunCommand)(run.command)


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
    """Run a command; the one place that turns an error into a line and an exit code."""
    try:
        # newer typers return an exit code, older ones raise
        code = app(args=sys.argv[1:] or ["--help"], standalone_mode=False)
    except run.Launch as launch:
        # out there its exceptions, its exit code and Ctrl-C are the interpreter's business, as if it ran alone
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
