"""A second spike is recorded where the allocator keeps a history, and the history is off again afterwards."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tbmem import MemoryCallback
from tbmem.config.schema import SnapshotConfig
from tbmem.model.finding import Finding, FindingKind, Severity
from tbmem.model.sample import MemorySample
from tbmem.runtime.process.run_folder import RunFolder
from tbmem.runtime.profiling.next_spike import NextSpike
from tbmem.runtime.profiling.snapshots import Snapshots
from tests.conftest import MakeSample
from tests.sources.fakes import GIB, MIB, FakeCuda

SPIKE = Finding(
    kind=FindingKind.SPIKE,
    severity=Severity.WARNING,
    device="cuda:0",
    first_step=40,
    last_step=40,
    message="",
    evidence={"usual_bytes": 10 * GIB, "height_bytes": 4 * GIB, "peak_bytes": 14 * GIB},
)


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(SnapshotConfig(), RunFolder(tmp_path), [])


def _steps(awaited: NextSpike, samples: list[MemorySample], *, is_free: bool = True) -> list[int]:
    """The steps that were recorded."""
    return [sample.step for sample in samples if awaited.step(sample.step, sample, is_free=is_free)]


def test_the_next_step_that_needs_as_much_is_written_once(
    cuda: FakeCuda, snapshots: Snapshots, make_sample: MakeSample, tmp_path: Path
) -> None:
    # given
    awaited = NextSpike(snapshots)
    awaited.expect(SPIKE, 41)
    # when it comes twice, a small one before it
    peaks = {50: 11.5, 60: 12.5, 70: 14.0}
    recorded = _steps(awaited, [make_sample(step, 9.0, peaks.get(step, 10.0)) for step in range(42, 80)])
    awaited.expect(SPIKE, 80)
    # then
    assert recorded == [60]
    assert awaited.device is None
    assert not cuda.memory.is_recording
    snapshots.folder.end()
    assert [path.name.split(".")[1] for path in tmp_path.glob("*.pickle")] == ["spike60"]


@pytest.mark.parametrize(("recorded", "begun"), [("windows", 10), ("run", 1)])
def test_the_history_is_that_of_a_step_unless_the_run_is_recorded(
    recorded: str, begun: int, cuda: FakeCuda, make_sample: MakeSample, tmp_path: Path
) -> None:
    # given
    awaited = NextSpike(Snapshots(SnapshotConfig(history=recorded), RunFolder(tmp_path), []))
    awaited.expect(SPIKE, 41)
    # when
    _steps(awaited, [make_sample(step, 9.0, 10.0) for step in range(42, 52)])
    # then
    assert len([call for call in cuda.memory.calls if call["enabled"]]) == begun
    assert cuda.memory.is_recording


def test_no_history_stays_on_where_no_other_comes(
    cuda: FakeCuda, snapshots: Snapshots, make_sample: MakeSample, tmp_path: Path
) -> None:
    # given
    awaited = NextSpike(snapshots)
    awaited.expect(SPIKE, 41)
    # when
    on = []
    for step in range(42, 1100):
        awaited.step(step, make_sample(step, 9.0, 10.0), is_free=True)
        on.append(cuda.memory.is_recording)
    # then
    assert sum(on) == 1000 - 1
    assert not any(on[-50:])
    assert not list(tmp_path.glob("*.pickle"))


def test_within_a_window_nothing_is_switched_on_or_written(
    cuda: FakeCuda, snapshots: Snapshots, make_sample: MakeSample, tmp_path: Path
) -> None:
    awaited = NextSpike(snapshots)
    awaited.expect(SPIKE, 41)

    assert _steps(awaited, [make_sample(step, 9.0, 10.0) for step in range(42, 50)], is_free=False) == []
    assert not cuda.memory.is_recording
    # the window has ended, and another one begins while the history is on: the spike is in that
    assert _steps(awaited, [make_sample(50, 9.0, 10.0)]) == []
    assert cuda.memory.is_recording
    assert _steps(awaited, [make_sample(51, 9.0, 14.0)], is_free=False) == []
    assert not cuda.memory.is_recording
    assert not list(tmp_path.glob("*.pickle"))


def test_a_device_without_a_history_is_not_waited_for(snapshots: Snapshots, make_sample: MakeSample) -> None:
    awaited = NextSpike(snapshots)
    awaited.expect(SPIKE, 41)

    assert _steps(awaited, [make_sample(step, 9.0, 14.0) for step in range(42, 50)]) == []
    assert awaited.device is None


def test_in_a_run_the_second_spike_is_recorded(cuda: FakeCuda, tmp_path: Path) -> None:
    # given a loop with a spike in steps 80 and 137
    options = {"run": {"logdir": str(tmp_path), "name": "run"}, "profiling": {"skip_first": 500}}
    cuda.malloc(512 * MIB)
    # when
    with MemoryCallback(**options) as memory:
        for step in range(1, 180):
            cuda.spike(256 * MIB if step in (80, 137) else 32 * MIB)
            memory.step()
        assert not cuda.memory.is_recording
    # then
    assert memory.summary is not None
    (written,) = [Path(name) for name in memory.summary.snapshots if "spike" in name]
    assert "spike137" in written.name
    trace = pickle.loads(written.read_bytes())["device_traces"][0]
    assert max(event["size"] for event in trace) == 256 * MIB
