"""Writes a recording of torch's profiler as a Chrome trace, where torch alone writes none or one that is not JSON."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import suppress
from errno import EIO
from pathlib import Path
from typing import Any

_PLAIN = re.compile(r"[\w./ ~@+=,:-]+")
_TORCHS_PARTIAL = ".tmp"  # torch's own suffix until the file is complete
_PROBE = 1 << 16  # bytes: more than a block of any file system


def export_trace(recorded: Any, path: Path) -> None:
    """Write the trace of ``recorded``, a ``torch.profiler.profile``, to ``path``; the file is complete or absent.

    torch (2.13) writes the path into the trace without quoting it, and cannot rename its own file where the path has a
    backslash or a line break. Such a trace is written to the temporary folder first.

    Raises:
        OSError: It cannot be written; torch says so on stderr only.
    """
    if _PLAIN.fullmatch(str(path)):
        _export(recorded, path)
        return
    with tempfile.TemporaryDirectory(prefix="tbmem-") as folder:
        written = Path(folder, "trace.json")
        _export(recorded, written)
        shutil.move(written, path)


def _export(recorded: Any, path: Path) -> None:
    partial = path.with_name(path.name + _TORCHS_PARTIAL)
    try:
        recorded.export_chrome_trace(str(path))
        if not path.exists():
            _raise_why_not(partial)
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _raise_why_not(partial: Path) -> None:
    """Raise what the system says of a file that torch could not complete."""
    try:
        with open(partial, "ab") as file:
            file.write(b" " * _PROBE)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(partial.parent)) from error
    raise OSError(EIO, "torch.profiler could not write the trace", str(partial.parent))
