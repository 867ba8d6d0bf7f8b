"""What the adapters' tests share: the frameworks' own warnings are theirs, and a log is read back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tbmem.integrations.base import TrainingSession
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import MonitorLog, read_monitor_log

os.environ.setdefault("KERAS_BACKEND", "torch")  # it is asked once, when Keras is imported
FOLDER = Path(__file__).parent
LEAK = Finding(
    kind=FindingKind.LEAK,
    severity=Severity.CRITICAL,
    device="cpu",
    first_step=1,
    last_step=3,
    message="memory grows by 4.00 MiB per step",
    evidence={"bytes_per_step": 4 << 20},
)


def find_leak(session: TrainingSession) -> None:
    """The monitor finds a leak, in the middle of a step; what it takes to find one is tested elsewhere."""
    assert session.memory is not None
    assert session.memory.monitor is not None
    session.memory.monitor.report(LEAK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A framework warns of itself, of its friends and of the machine: not our tests' business."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def only_log() -> Callable[[Path], MonitorLog]:
    """The one live log below a folder."""

    def find(folder: Path) -> MonitorLog:
        (path,) = folder.rglob("monitor.jsonl")
        return read_monitor_log(path)

    return find
