"""The live logs of whatever a path means, as where each rank stands: what a comparison of runs is made of."""

from __future__ import annotations

import os
from pathlib import Path

from tbmem.analysis.run_state import RunState
from tbmem.model.files import MONITOR_LOG
from tbmem.offline.live_logs import read_log


def read_states(place: str | os.PathLike[str]) -> list[RunState]:
    """Where each log below a folder stands; nothing without a log.

    Args:
        place: A run folder, a folder of runs or ranks, or a log itself.

    Raises:
        FileFormatError: A log is something else.
        OSError: A log cannot be read.
    """
    path = Path(place)
    name = Path(MONITOR_LOG).name
    logs = sorted(path.rglob(MONITOR_LOG)) if path.is_dir() else [path] if path.name == name and path.exists() else []
    return [state for _, state in map(read_log, logs)]
