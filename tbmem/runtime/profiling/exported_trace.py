"""Takes a trace out of torch's profiler without a disk: torch holds the interpreter lock while it writes one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

_IN_MEMORY = Path("/dev/shm")  # nosec B108  # only folders that mkdtemp has made are used
"""A folder of Linux that is in memory."""
_NAME = "trace.json"
_NAMES = (_NAME, f"{_NAME}.tmp")
"""Names under which torch opens the file: newer versions rename it at the end."""


def export_to_memory(export: Callable[[str], object]) -> BinaryIO:
    """The file that ``export`` writes to the path it is given, in memory where the system allows it.

    A disk that does not answer would hold up every thread of the process, wherever ``export`` runs.

    Raises:
        OSError: Nothing was written: there is no room.
    """
    with_memory = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="tbmem-", dir=with_memory))
    memory, file = _memory_file(), None
    try:
        try:
            if memory is not None:
                for name in _NAMES:
                    # torch opens a path: these lead to the memory, which is not limited as a container's /dev/shm is
                    (folder / name).symlink_to(f"/proc/self/fd/{memory}")
            export(str(folder / _NAME))
            file = open(folder / _NAME, "r+b")  # noqa: SIM115  (the caller's; its content outlives the name)
        finally:
            if memory is not None:
                os.close(memory)
            shutil.rmtree(folder, ignore_errors=True)
        if not file.seek(0, os.SEEK_END):
            raise OSError("torch has written no trace: is there memory left?")
        return file
    except BaseException:  # the program's as well, which may arrive while the folder is removed
        if file is not None:
            file.close()
        raise


def _memory_file() -> int | None:
    """A file that only exists in memory; ``None`` where the system has none."""
    try:
        return os.memfd_create("tbmem trace")
    except (AttributeError, OSError):
        return None
