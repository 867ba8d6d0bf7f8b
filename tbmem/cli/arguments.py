"""Arguments that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

ConfigFile = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="A YAML file; without it the defaults."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[KEY=VALUE]...", help="Values that win over the file, such as profiling.active=5."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
Rules = Annotated[
    str | None,
    typer.Option("--rules", metavar="FILE", help="YAML with further words by which categories are inferred."),
]
