"""Options that several commands share, and how they are read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from tbmem.errors import UsageError
from tbmem.model.unpacked_size import VARIABLE
from tbmem.units import parse_bytes

if TYPE_CHECKING:
    from tbmem.analysis.recordings.category_rules import CategoryTable

ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="YAML configuration file, or light, deep or oom; by default none."
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Values that override the file: profiling.active=5.")
]
Logdir = Annotated[str | None, typer.Option(help="Folder for all runs; the same as run.logdir=.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Name = Annotated[str | None, typer.Option(help="Name of the report; by default derived from the path.")]
Out = Annotated[
    str | None, typer.Option(metavar="DIR", help="Parent folder of the report; 'results' by default unless --json.")
]
Rules = Annotated[str | None, typer.Option(metavar="FILE", help="YAML file with more rules for inferring categories.")]


def _allow(size: str | None) -> str | None:
    """Keep the limit where the processes that read several files find it as well."""
    if size is not None:
        try:
            parse_bytes(size)
        except ValueError as error:
            raise UsageError(f"--max-size: {error}") from error
        os.environ[VARIABLE] = size
    return size


_MAX_SIZE = "Largest recording to read, unpacked; by default 16GiB, of a compressed one at most 250 times its size."
MaxSize = Annotated[str | None, typer.Option(metavar="SIZE", callback=_allow, help=_MAX_SIZE)]


def category_table(rules: str | None) -> CategoryTable | None:
    """The rules of the option ``--rules``."""
    from tbmem.offline.analyze import load_rules

    return load_rules(rules) if rules is not None else None
