"""Where the program raised an exception."""

from __future__ import annotations

import traceback

from tbmem.model.evidence import CodeLine
from tbmem.sources.program.ownership import is_user_file


def raised_at(error: BaseException) -> CodeLine | None:
    """The innermost line of the user's own code that an exception has passed through; ``None`` where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_user_file(frame.filename):
            return CodeLine(file=frame.filename, line=frame.lineno or 0, function=frame.name, text=frame.line or "")
    return None
