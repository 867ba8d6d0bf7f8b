"""What a run needs after its last step counts in its peak, on all ways."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tbmem import MemoryMonitor
from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.model.monitor_log import read_monitor_log
from tbmem.model.sample import MemorySample
from tbmem.runtime.device_judge import DeviceJudges
from tbmem.runtime.unfinished_step import UnfinishedStep
from tbmem.sources.counters.sampler import Counters
from tests.conftest import GIB, MakeSample


class _Peaks(Counters):
    """Plays peaks in GiB; the level is always 1 GiB."""

    def __init__(self, make_sample: MakeSample, peaks: Sequence[float], passed: Sequence[int] = ()) -> None:
        self._make, self._peaks, self._waiting = make_sample, peaks, list(passed)
        self.reads = 0

    def pass_over(self, now: float) -> bool:
        return False

    def passed(self, step: int) -> list[MemorySample]:
        waiting, self._waiting = self._waiting, []
        return [self._make(number, 1.0) for number in waiting]

    def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
        self.reads += 1
        return [*self.passed(step), self._make(step, 1.0, self._peaks[step - 1], profiled=profiled)]

    def notes(self) -> list[str]:
        return []

    def close(self) -> None:
        pass


def _judges(*samples: MemorySample) -> DeviceJudges:
    judges = DeviceJudges(lambda device: None)
    judges.judge(samples)
    return judges


@pytest.mark.parametrize(
    ("after", "ran_out", "found"), [(9.0, False, True), (5.02, False, False), (2.0, False, False), (2.0, True, True)]
)
def test_it_counts_where_it_is_clearly_the_highest_or_memory_ran_out_in_it(
    after: float, ran_out: bool, found: bool, make_sample: MakeSample
) -> None:
    # given a step that needed 5 GiB
    judges, unfinished = _judges(make_sample(1, 1.0, 5.0)), UnfinishedStep()
    # when
    unfinished.read(_Peaks(make_sample, [5.0, after]), 2, judges.last.values())
    rows = unfinished.rows(judges, ran_out=ran_out)
    # then
    assert [(row.sample.step, row.count, row.sample.allocated) for row in rows] == ([(2, 0, None)] if found else [])
    (peak,) = judges.peaks
    assert peak.when == ("after step 1" if after > 6 else "in step 1")
    assert unfinished.rows(judges, ran_out=ran_out) == []  # each once


def test_it_is_read_once_and_steps_that_were_passed_over_are_not_lost(make_sample: MakeSample) -> None:
    # given
    counters, unfinished = _Peaks(make_sample, [5.0] * 4, passed=(2, 3)), UnfinishedStep()
    # when
    before = unfinished.read(counters, 4, ())
    # then
    assert [sample.step for sample in before] == [2, 3]
    assert unfinished.read(counters, 4, ()) == []
    assert counters.reads == 1


def test_after_a_recorded_step_the_resident_memory_is_not_the_programs(make_sample: MakeSample) -> None:
    # given a profiler's records in the heap
    last = make_sample(1, 1.0, 5.0, device="cpu", profiled=True)
    judges, unfinished = _judges(last), UnfinishedStep()
    # when
    unfinished.read(_Peaks(make_sample, [5.0, 9.0]), 2, [last])
    # then
    (sample,) = unfinished._samples
    assert sample.profiled
    assert not judges.is_raised_by(sample._replace(device="cpu"))


def test_an_evaluation_after_training_is_the_peak_in_the_summary_and_in_the_log(
    tmp_path: Path, make_sample: MakeSample
) -> None:
    # given three steps of 5 GiB, and 9 GiB after them
    monitor = MemoryMonitor(folder=tmp_path, counters=_Peaks(make_sample, [5.0, 5.0, 5.0, 9.0]), console=False)
    # when
    with monitor:
        for _ in range(3):
            monitor.step()
    # then
    (peak,) = monitor.peaks()
    assert (peak.bytes, peak.when) == (9 * GIB, "after step 3")
    log = read_monitor_log(tmp_path / "plugins/tbmem/monitor.jsonl")
    history = DeviceHistory("cuda:0", 0)
    for row in log.rows:
        history.add(row)
    assert history.peak == peak
    assert history.last is not None
    assert (history.last.step, history.last_level) == (3, GIB)
    assert log.end is not None
    assert log.end["steps"] == 3
