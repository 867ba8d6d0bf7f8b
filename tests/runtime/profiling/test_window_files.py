"""A window's files are written completely, or not at all."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path

import pytest

from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.window_files import WindowFiles


def test_of_a_window_without_room_for_its_trace_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a disk with room for a snapshot, and none for the trace after it
    def full(_source: object, target: Path) -> None:
        target.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    folder = RunFolder(tmp_path)
    files = WindowFiles(
        folder=folder,
        trace=folder.trace(1),
        content=io.BytesIO(b'{"traceEvents": []}'),  # type: ignore[arg-type]
        size=19,
        additions=None,
        snapshot=(folder.snapshot(1), b"a pickle"),
    )
    # when
    with monkeypatch.context() as patched:
        patched.setattr("tbmem.runtime.profiling.window_files.compress", full)
        with pytest.raises(OSError, match="No space left"):
            files.write()
    # then
    assert [path.name for path in tmp_path.rglob("*") if path.suffix in (".gz", ".pickle", ".npz", ".tmp")] == []

    # and once there is room all of it is written
    trace, book, snapshot = files.write()
    files.close()
    assert (trace.exists(), book, snapshot is not None and snapshot.exists()) == (True, None, True)
