"""Snapshots of the device in use, and a history that is on for windows or for the run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tbmem.config.schema import SnapshotConfig
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.snapshots import Snapshots
from tests.sources.fakes import FakeCuda


def _snapshots(folder: Path, **config: object) -> Snapshots:
    return Snapshots(SnapshotConfig(**config), RunFolder(folder), [])  # type: ignore[arg-type]


def test_a_history_of_the_run_is_on_as_soon_as_a_device_is_in_use(cuda: FakeCuda, tmp_path: Path) -> None:
    # given
    cuda.initialized = False
    snapshots = _snapshots(tmp_path, history="run")
    # when / then
    snapshots.find_history()
    assert snapshots.waits_for_history
    cuda.malloc(512)
    snapshots.find_history()
    assert cuda.memory.is_recording
    assert not snapshots.waits_for_history
    # what waits for a single event does not end it
    snapshots.end_history()
    assert cuda.memory.is_recording
    snapshots.stop()
    assert not cuda.memory.is_recording


def test_a_history_of_windows_is_left_to_them(cuda: FakeCuda, tmp_path: Path) -> None:
    snapshots = _snapshots(tmp_path)

    snapshots.find_history()

    assert snapshots.history is not None
    assert not cuda.memory.is_recording
    assert not snapshots.waits_for_history


def test_a_full_ring_buffer_is_told(cuda: FakeCuda, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # given room for two events
    snapshots = _snapshots(tmp_path, history="run", max_entries=2)
    snapshots.find_history()
    for _ in range(3):
        cuda.spike(1 << 20)
    # when
    with caplog.at_level(logging.WARNING, "tbmem"):
        path = snapshots.write("here")
    # then
    assert path is not None
    snapshots.folder.end()
    assert "snapshot.max_entries=2" in caplog.text
    snapshots.stop()


def test_after_an_out_of_memory_error_one_is_written_only_if_wanted(cuda: FakeCuda, tmp_path: Path) -> None:
    _snapshots(tmp_path, on_oom=False).write_at_oom()
    assert not list(tmp_path.glob("*.pickle"))

    snapshots = _snapshots(tmp_path)
    snapshots.write_at_oom()
    snapshots.folder.end()
    assert [path.name.split(".")[1] for path in tmp_path.glob("*.pickle")] == ["oom"]
