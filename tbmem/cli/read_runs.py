"""A path goes in; its runs, with where each rank of them stands, come out: what `watch` and `check` share."""

from __future__ import annotations

import os
from collections.abc import Sequence

from tbmem.analysis.run_state import RunState
from tbmem.errors import UsageError
from tbmem.sources.log_columns import FollowedLog
from tbmem.sources.processes import is_alive
from tbmem.sources.runs import RunFiles, find_runs


class ReadRun:
    """A run, read as far as it is written.

    Args:
        files: Where it lies.
    """

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._logs = [(FollowedLog(path), RunState()) for path in files.logs]

    def read(self) -> None:
        """Take in what was written since the last call.

        Raises:
            FileFormatError: A log is none.
            UsageError: A log cannot be read.
        """
        for log, state in self._logs:
            _read(log, state)
            if state.end is None and state.signal is None:
                state.is_alive = is_alive(state.header.get("process") or {})
                _read(log, state)  # what a process that is gone wrote last

    @property
    def states(self) -> Sequence[RunState]:
        """One per rank, in order."""
        return sorted((state for _, state in self._logs), key=lambda state: state.rank)

    @property
    def has_ended(self) -> bool:
        """Whether every rank has ended."""
        return all(state.has_ended for state in self.states)


def _read(log: FollowedLog, state: RunState) -> None:
    try:
        for piece in log.read():
            state.add(piece)
    except OSError as error:
        raise UsageError(f"{log.path}: cannot be read: {error.strerror or error}") from error


def read_one_run(path: str | os.PathLike[str]) -> ReadRun:
    """The one run that a path means.

    Raises:
        UsageError: There is none, or there are several.
        FileFormatError: A log is none.
    """
    found = find_runs(path)
    if len(found) > 1:
        names = ", ".join(run.name for run in found[-3:])
        raise UsageError(f"{path}: holds {len(found)} runs; name one, such as {names}")
    run = ReadRun(found[0])
    run.read()
    return run
