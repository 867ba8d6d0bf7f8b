"""Log folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from tbmem.model.timeline import save_timeline
from tests.analysis.timelines import recording, training_step
from tests.offline.queries.folder import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "runs").mkdir()
    return Folder(tmp_path / "runs")


@pytest.fixture
def recorded(folder: Folder) -> Folder:
    """A run ``a`` with a timeline of two steps."""
    timeline = recording(*training_step(0, 0), *training_step(1, 10), {"bytes": 50})
    (folder.path / "a").mkdir()
    save_timeline(timeline, folder.path / "a/w.tbmem.npz")
    return folder
