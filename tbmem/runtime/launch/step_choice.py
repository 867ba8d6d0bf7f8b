"""The option ``--step-on``: which optimizer's steps are the training's."""

from __future__ import annotations

import re

from tbmem.errors import UsageError

_CHOICE = re.compile(r"[1-9]\d*|[A-Za-z_]\w*")


def check_step_on(choice: str) -> None:
    """Check the ``choice`` of a ``StepCounter``, before torch is loaded.

    Raises:
        UsageError: It is neither a number nor a name.
    """
    if not _CHOICE.fullmatch(choice):
        raise UsageError(f"--step-on {choice!r}: write first, each, 2 (the second) or a class's name")
