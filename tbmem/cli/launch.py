"""Command line of ``tbmem run``, parsed without typer where it is plain, which halves the start-up time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tbmem.errors import UsageError
from tbmem.sources.gc_pause import gc_paused

_USAGE = "tbmem run [-c FILE] [KEY=VALUE]... -- script.py [ARGS]..."
_OVERRIDE = re.compile(r"\w+(\.\w+)*=")
_OPTIONS = {"-c": "config", "--config": "config", "--logdir": "logdir", "--step-on": "step_on"}


class Runnable(Protocol):
    """A program that is ready to run."""

    def run(self) -> None:
        """Run it."""


class LaunchSpec(NamedTuple):
    """A program to run, and how it is monitored."""

    words: Sequence[str]
    """The script, or ``-m`` and a module, with its arguments."""
    overrides: Sequence[str] = ()
    config: str | None = None
    logdir: str | None = None
    step_on: str = "first"

    def prepare(self) -> Runnable:
        """The program under its callback, ready to run.

        Raises:
            TbmemError: There is no such program, or the configuration is wrong.
        """
        if not self.words:
            raise UsageError(f"no script to run: {_USAGE}")
        from tbmem.runtime.launch.step_choice import check_step_on

        check_step_on(self.step_on)
        from tbmem.sources.counters.own_memory import own_memory

        with gc_paused():  # collections while torch is imported take half of the start-up time
            with own_memory.working():
                from tbmem.config import load_with_origins
                from tbmem.runtime.launch.script import Program

                settings = load_with_origins(self.config, with_logdir(self.overrides, self.logdir))
                program = Program.find(self.words)  # before torch is loaded: a typo is reported at once

            import torch  # noqa: F401  # the program's own, so it is not tbmem's memory

            with own_memory.working():
                from tbmem.runtime.launch.program import MonitoredProgram

                return MonitoredProgram(program, settings, self.step_on)


def with_logdir(overrides: Sequence[str] | None, logdir: str | None) -> list[str]:
    """Overrides of the configuration with the option ``--logdir``."""
    return [*(overrides or ()), *([] if logdir is None else [f"run.logdir={json.dumps(logdir)}"])]


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Arguments of tbmem and of the program, which begins after ``--``, at ``-m`` or at the first other word."""
    position = 0
    while position < len(words):
        word = words[position]
        if word == "--":
            return list(words[:position]), list(words[position + 1 :])
        if word in ("-m", "-") or not (word.startswith("-") or _OVERRIDE.match(word)):
            break
        position += 2 if word in _OPTIONS else 1
    return list(words[:position]), list(words[position:])


def plain_spec(words: Sequence[str]) -> LaunchSpec | None:
    """The specification of a plain command line; ``None`` for one that needs the parser (``--help``, a typo)."""
    arguments, program = split(words)
    overrides: list[str] = []
    options: dict[str, str] = {}
    rest = iter(arguments)
    for word in rest:
        if _OVERRIDE.match(word):
            overrides.append(word)
        elif word not in _OPTIONS or (value := next(rest, None)) is None:
            return None
        else:
            options[_OPTIONS[word]] = value
    return LaunchSpec(program, overrides, **options)
