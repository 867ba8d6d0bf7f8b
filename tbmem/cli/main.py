"""Arguments go in, an exit code comes out: 0 fine, 1 a check failed, 2 wrong input, 130 interrupted."""

from __future__ import annotations

import sys

import typer

from tbmem.cli import config, demo, estimate
from tbmem.errors import TbmemError

app = typer.Typer(
    help="Memory that explains itself: watch, profile and judge the memory of PyTorch training.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for name, module in (("demo", demo), ("config", config), ("estimate", estimate)):
    app.command(name)(module.command)


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
    """Run a command; the one place that turns an error into a line and an exit code."""
    try:
        app()
    except TbmemError as error:
        print(f"tbmem: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("tbmem: interrupted", file=sys.stderr)
        sys.exit(130)
