"""Command line of ``tbmem run``, parsed without typer where it is plain, which halves the start-up time."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tbmem.errors import UsageError
from tbmem.sources.gc_pause import gc_paused

USAGE = "tbmem run [-c FILE] [KEY=VALUE]... -- script.py [ARGS]..."
_OVERRIDE = re.compile(r"\w+(\.\w+)*=")
_STEP_ON = re.compile(r"[1-9]\d*|[A-Za-z_]\w*")
_OPTIONS = {"-c": "config", "--config": "config", "--logdir": "logdir", "--step-on": "step_on"}


class Runnable(Protocol):
    """A program that is ready to run."""

    def run(self) -> None:
        """Run it."""


class Launch(BaseException):
    """Carries a program out of the command parser, which would catch the program's exceptions."""

    def __init__(self, program: Runnable) -> None:
        super().__init__()
        self.program = program


@dataclass(kw_only=True)
class LaunchSpec:
    """A program to run, and how it is watched."""

    words: Sequence[str] = ()
    """The script, or ``-m`` and a module, with its arguments."""
    config: str | None = None
    overrides: list[str] = field(default_factory=list)
    logdir: str | None = None
    step_on: str = "first"

    def prepare(self) -> Runnable:
        """The program under its callback, ready to run.

        Raises:
            TbmemError: There is no such program, or the configuration is wrong.
        """
        if not self.words:
            raise UsageError(f"no script to run: {USAGE}")
        if not _STEP_ON.fullmatch(self.step_on):
            raise UsageError(f"--step-on {self.step_on!r}: write first, each, 2 (the second) or a class's name")
        with gc_paused():  # collections while torch is imported take half of the start-up time
            return self._prepare()

    def _prepare(self) -> Runnable:
        from tbmem.config import load_with_origins
        from tbmem.runtime.launch.script import Program

        logdir = [] if self.logdir is None else [f"run.logdir={json.dumps(self.logdir)}"]
        settings = load_with_origins(self.config, [*self.overrides, *logdir])
        program = Program.find(self.words)  # before torch is loaded: a typo is reported at once

        from tbmem.runtime.launch.program import MonitoredProgram

        return MonitoredProgram(program, settings, self.step_on)


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
    options, program = split(words)
    spec = LaunchSpec(words=program)
    rest = iter(options)
    for word in rest:
        value = word if _OVERRIDE.match(word) else next(rest, None) if word in _OPTIONS else None
        if value is None:
            return None
        if value is word:
            spec.overrides.append(word)
        else:
            setattr(spec, _OPTIONS[word], value)
    return spec
