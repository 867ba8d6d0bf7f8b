"""Options of ``%%tbmem``, with the names that they have on the command line."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from dataclasses import dataclass, replace
from typing import NoReturn

from tbmem.config import LoadedConfig, load_with_origins
from tbmem.errors import UsageError
from tbmem.runtime.launch.step_choice import check_step_on

USAGE = (
    "%%tbmem [-c CONFIG] [--name NAME] [--logdir DIR] [--step-on OPTIMIZER] [--into VARIABLE] [--no-chart]"
    " [KEY=VALUE]..."
)
_OVERRIDE = re.compile(r"\w+(\.\w+)*=")


@dataclass(frozen=True, kw_only=True, slots=True)
class CellOptions:
    """How a cell is watched."""

    config: LoadedConfig
    step_on: str = "first"
    has_chart: bool = True
    into: str | None = None
    """Variable of the notebook that gets the result."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"%%tbmem: {message}; usage: {USAGE}")


def parse_options(line: str) -> CellOptions:
    """The options of a line.

    The lines of the console are left out, since the cell shows the same: ``output.console=true`` brings them back.

    Raises:
        UsageError: An option is unknown or lacks its value.
        ConfigError: The configuration is wrong.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%tbmem: {error} in {line.strip()!r}") from error
    given = _parser().parse_intermixed_args(words)
    if strange := [word for word in given.overrides if not _OVERRIDE.match(word)]:
        raise UsageError(f"%%tbmem: {strange[0]!r} is not KEY=VALUE; usage: {USAGE}")
    check_step_on(given.step_on)
    if given.into is not None and not given.into.isidentifier():
        raise UsageError(f"%%tbmem: --into {given.into!r} is not the name of a variable; usage: {USAGE}")
    named = {"run.logdir": given.logdir, "run.name": given.name}
    options = [f"{key}={json.dumps(value)}" for key, value in named.items() if value is not None]
    loaded = load_with_origins(given.config, [*given.overrides, *options])
    if loaded.origins["output.console"] == "default":
        output = replace(loaded.config.output, console=False)
        loaded = replace(loaded, config=replace(loaded.config, output=output))
    return CellOptions(config=loaded, step_on=given.step_on, has_chart=given.chart, into=given.into)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%tbmem", add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("-c", "--config")
    parser.add_argument("--name")
    parser.add_argument("--logdir")
    parser.add_argument("--step-on", default="first")
    parser.add_argument("--into")
    parser.add_argument("--no-chart", dest="chart", action="store_false")
    return parser
