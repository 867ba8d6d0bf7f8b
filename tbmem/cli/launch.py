"""The command line of `tbmem run`, read without a parser where it is plain."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tbmem.errors import UsageError
from tbmem.sources.gc_pause import collector_paused

USAGE = "tbmem run [-c FILE] [KEY=VALUE]... -- script.py [ARGS]..."
_OVERRIDE = re.compile(r"\w+(\.\w+)*=")
_STEP_ON = re.compile(r"[1-9]\d*|[A-Za-z_]\w*")
_OPTIONS = {"-c": "config", "--config": "config", "--logdir": "logdir", "--step-on": "step_on"}


class Runnable(Protocol):
    """What is ready to run."""

    def run(self) -> None:
        """Run it."""


class Launch(BaseException):
    """A program is ready; it must not run under a parser that catches its exceptions.

    Args:
        program: What to run.
    """

    def __init__(self, program: Runnable) -> None:
        super().__init__()
        self.program = program


@dataclass(kw_only=True)
class LaunchSpec:
    """What shall run, and how it is watched."""

    words: Sequence[str] = ()
    """The script, or ``-m`` and a module, with its arguments."""
    config: str | None = None
    overrides: list[str] = field(default_factory=list)
    logdir: str | None = None
    step_on: str = "first"

    def prepare(self) -> Runnable:
        """The program under its callback; it only has to be run.

        Raises:
            TbmemError: There is no such program, or the configuration is wrong.
        """
        if not self.words:
            raise UsageError(f"no script to run: {USAGE}")
        if not _STEP_ON.fullmatch(self.step_on):
            raise UsageError(f"--step-on {self.step_on!r}: write first, each, 2 (the second) or a class's name")
        with collector_paused():  # looking for garbage in all that torch makes is half of our start-up
            return self._prepare()

    def _prepare(self) -> Runnable:
        from tbmem.config import load_with_origins
        from tbmem.runtime.launch.script import Program

        own = [] if self.logdir is None else [f"run.logdir={json.dumps(self.logdir)}"]
        settings = load_with_origins(self.config, [*self.overrides, *own])
        program = Program.find(self.words)  # before torch is loaded: a typo is told at once

        from tbmem.runtime.launch.program import WatchedProgram

        return WatchedProgram(program, settings, self.step_on)


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words, and the program with its own: after ``--``, from ``-m`` or from the first word that is not ours."""
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
    """The order that a plain command line means, without a parser: loading that takes as long as all of tbmem.

    Returns:
        ``None`` where a word is not plain (``--help``, ``--logdir=x``, a typo): the parser knows what to say.
    """
    own, program = split(words)
    order = LaunchSpec(words=program)
    rest = iter(own)
    for word in rest:
        value = word if _OVERRIDE.match(word) else next(rest, None) if word in _OPTIONS else None
        if value is None:
            return None
        if value is word:
            order.overrides.append(word)
        else:
            setattr(order, _OPTIONS[word], value)
    return order
