"""What the sinks' tests share: a run of hand-built records, sent through a sink to the real library, offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.monitor_log import LogRecord
from tbmem.model.sample import MemorySample
from tbmem.model.sample_row import SampleRow
from tbmem.present.scalars import scalar_values
from tbmem.runtime.metric_sinks import MetricSink, MetricSinks
from tbmem.runtime.process.guard import Guard
from tests.conftest import GIB, MakeSample, wait_until

FOLDER = Path(__file__).parent
STEPS = (10, 20, 30)
LEAK = Finding(
    kind=FindingKind.LEAK,
    severity=Severity.CRITICAL,
    device="cuda:0",
    first_step=1,
    last_step=20,
    message="memory grows by 1.00 GiB per step",
)
PEAK = 60 + 30


Logged = Callable[..., dict[str, dict[int, float]]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A logger warns of itself and of the machine: not our tests' business."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def samples(make_sample: MakeSample) -> list[MemorySample]:
    """Three steps of a GPU whose memory grows."""
    return [make_sample(step, 45.0 + step, 60.0 + step, host_rss=GIB, alloc_retries=step // 10) for step in STEPS]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loggers write to the current folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def logged(samples: list[MemorySample], tmp_path: Path) -> Logged:
    """Sends the run through a sink, and returns the points that TensorBoard gets: values by tag and step."""

    def log(
        sink: MetricSink, rank: int = 0, during: Callable[[], object] = lambda: None
    ) -> dict[str, dict[int, float]]:
        guard = Guard()
        sinks = MetricSinks(sink, guard)
        sinks.begin(tmp_path, rank)
        rows: list[LogRecord] = [SampleRow(s.step, 1, s.allocated, s.allocated, s) for s in samples]
        sinks.write([{"type": "header"}, *rows[:2], LEAK])
        assert wait_until(lambda: not any(feed.worker._waiting for feed in sinks._feeds))
        during()
        sinks.write([*rows[2:], {"type": "end", "verdicts": [LEAK.to_dict()]}])
        sinks.close()
        assert guard.problems == []
        points: dict[str, dict[int, float]] = {}
        for sample in samples:
            for tag, value in scalar_values(sample):
                points.setdefault(tag, {})[sample.step] = value
        return points

    return log
