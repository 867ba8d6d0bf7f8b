"""The live monitor on hand-built counters, and on this machine's own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from tbmem import ConfigError, MemoryCallback, MemoryMonitor, MemorySample, UsageError
from tbmem.analysis.detector.detector import Detector
from tbmem.config.schema import MonitorConfig, PatternsConfig
from tbmem.model.finding import Finding, FindingKind
from tbmem.model.monitor_log import read_monitor_log
from tbmem.sources.counters.sampler import Counters
from tests.conftest import GIB, MakeSample


class SeriesCounters(Counters):
    """Plays a series of levels in GiB instead of reading a device; after the last one it is 1 GiB."""

    def __init__(self, make_sample: MakeSample, levels: Sequence[float]) -> None:
        self._make, self._levels = make_sample, levels
        self.thorough: list[int] = []
        self.closed = False

    def pass_over(self, now: float) -> bool:
        return False

    def passed(self, step: int) -> list[MemorySample]:
        return []

    def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
        if thorough:
            self.thorough.append(step)
        level = self._levels[step - 1] if step <= len(self._levels) else 1.0
        return [self._make(step, level, profiled=profiled)]

    def refresh(self) -> None:
        pass

    def refresh_workers(self) -> None:
        pass

    def notes(self) -> list[str]:
        return []

    def discard_peaks(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class RestingCounters(SeriesCounters):
    """Counters of which one is due at every fourth step, and at the one after it."""

    def __init__(self, make_sample: MakeSample, levels: Sequence[float]) -> None:
        super().__init__(make_sample, levels)
        self.sampled: list[int] = []
        self._waiting: list[int] = []
        self._step = 0

    def pass_over(self, now: float) -> bool:
        if (self._step + 1) % 4 in (0, 1):
            return False
        self._step += 1
        self._waiting.append(self._step)
        return True

    def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
        passed = self.passed(step - 1)
        self._step = step
        self.sampled.append(step)
        return [*passed, *super().sample(step, thorough=thorough, profiled=profiled)]

    def passed(self, step: int) -> list[MemorySample]:
        waiting, self._waiting = self._waiting, []
        return [self._make(number, self._levels[number - 1]) for number in waiting]


def _play(monitor: MemoryMonitor, steps: int, error: Exception | None = None) -> None:
    with monitor:
        for _ in range(steps):
            monitor.step()
        if error is not None:
            raise error


def test_the_guides_leak_is_found_and_logged(
    tmp_path: Path, make_sample: MakeSample, caplog: pytest.LogCaptureFixture
) -> None:
    # given memory that grows by 2 GiB at every step
    counters = SeriesCounters(make_sample, [45 + 2 * n for n in range(16)])
    monitor = MemoryMonitor(folder=tmp_path, counters=counters, console=True)

    # when it is watched
    with caplog.at_level(logging.INFO, "tbmem"):
        _play(monitor, 16)

    # then it is called a leak on the console, in the log and at the end
    assert [verdict.kind for verdict in monitor.verdicts()] == [FindingKind.LEAK]
    assert "LEAK  GPU 0 +2.00 GiB/step since step" in caplog.text
    log = read_monitor_log(tmp_path / "plugins/tbmem/monitor.jsonl")
    assert FindingKind.LEAK in {finding.kind for finding in log.findings}
    assert log.end is not None
    assert counters.closed


def test_at_the_end_a_leak_that_is_known_is_reported_once_with_its_verdict(make_sample: MakeSample) -> None:
    # given 32 MiB a step, and a run that ends in the step in which the leak is reported for the second time
    levels = [1.0 + step / 32 for step in range(2000)]
    samples = (make_sample(step, level) for step, level in enumerate(levels, 1))
    detector = Detector()
    reported = [sample.step for sample in samples for each in detector.update(sample) if each.kind is FindingKind.LEAK]
    heard: list[Finding] = []
    counters = SeriesCounters(make_sample, levels)
    monitor = MemoryMonitor(counters=counters, console=False, on_finding=[heard.append])

    # when
    _play(monitor, reported[1])

    # then
    leaks = [finding for finding in heard if finding.kind is FindingKind.LEAK]
    assert len(leaks) == 2
    assert leaks == [finding for finding in monitor.findings if finding.kind is FindingKind.LEAK]
    assert leaks[-1] == monitor.verdicts()[0]


def test_lines_come_every_n_steps(make_sample: MakeSample, caplog: pytest.LogCaptureFixture) -> None:
    counters = SeriesCounters(make_sample, [45.0] * 20)
    monitor = MemoryMonitor(counters=counters, console=True, log_every_n_steps=5, line_seconds=0.0)

    with caplog.at_level(logging.INFO, "tbmem"):
        _play(monitor, 20)

    lines = [record.getMessage() for record in caplog.records]
    assert [line.split(" · ")[0] for line in lines] == ["step 5", "step 10", "step 15", "step 20"]
    assert lines[0].endswith("allocated 45.00 GiB · reserved 45.00 GiB · peak 45.00 GiB (56 % of 80)")
    assert counters.thorough == [5, 10, 15, 20, 21]


def test_without_console_nothing_is_said(make_sample: MakeSample, caplog: pytest.LogCaptureFixture) -> None:
    monitor = MemoryMonitor(counters=SeriesCounters(make_sample, [45.0, 45.0, 78.0]), console=False)

    with caplog.at_level(logging.INFO, "tbmem"):
        _play(monitor, 3)

    assert caplog.records == []
    assert FindingKind.SPIKE in {finding.kind for finding in monitor.findings}


def test_a_row_of_the_log_stands_for_its_steps(tmp_path: Path, make_sample: MakeSample) -> None:
    counters = SeriesCounters(make_sample, [1.0, 3.0, 2.0, 4.0])
    _play(MemoryMonitor(folder=tmp_path, counters=counters, console=False, log_every_n_steps=3), 4)

    rows = read_monitor_log(tmp_path / "plugins/tbmem/monitor.jsonl").rows
    assert [(row.first_step, row.sample.step, row.count) for row in rows] == [(1, 3, 3), (4, 4, 1)]
    assert (rows[0].allocated_min, rows[0].allocated_max) == (GIB, 3 * GIB)
    assert rows[0].sample.peak_allocated == 3 * GIB
    assert rows[0].sample.allocated == 2 * GIB


def test_a_signal_that_comes_while_a_step_is_read_comes_after_the_step_before(
    tmp_path: Path, make_sample: MakeSample
) -> None:
    # given
    class Interrupted(SeriesCounters):
        def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
            if step == 4:
                monitor.flush(ends=True)
            return super().sample(step, thorough=thorough, profiled=profiled)

    monitor = MemoryMonitor(folder=tmp_path, counters=Interrupted(make_sample, [1.0] * 4), console=False)
    # when
    _play(monitor, 4)
    # then it is the step of the last row that was written by then, and no row is written twice
    log = read_monitor_log(tmp_path / "plugins/tbmem/monitor.jsonl")
    assert log.signal is not None
    assert log.signal["step"] == 3
    assert [(row.first_step, row.sample.step) for row in log.rows] == [(1, 3), (4, 4)]


def test_scalars_are_in_gib_and_read_by_tensorboard(tmp_path: Path, make_sample: MakeSample) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    counters = SeriesCounters(make_sample, [45.0] * 20)
    _play(MemoryMonitor(folder=tmp_path, counters=counters, console=False), 20)

    events = EventAccumulator(str(tmp_path))
    events.Reload()
    points = events.Scalars("memory/allocated")
    assert [(point.step, point.value) for point in points] == [(10, 45.0), (20, 45.0)]
    assert events.Scalars("memory/utilization_percent")[0].value == pytest.approx(56.25)


def test_the_peak_of_the_run_is_kept(make_sample: MakeSample) -> None:
    monitor = MemoryMonitor(counters=SeriesCounters(make_sample, [1.0, 5.0, 2.0]), console=False)

    _play(monitor, 3)

    (peak,) = monitor.peaks()
    assert (peak.bytes, peak.step, peak.total, peak.counter) == (5 * GIB, 2, 80 * GIB, "peak_allocated")


def test_the_peak_of_the_step_that_ran_out_of_memory_is_the_runs(tmp_path: Path, make_sample: MakeSample) -> None:
    # given a run whose fourth step needs most, and does not end
    monitor = MemoryMonitor(folder=tmp_path, counters=SeriesCounters(make_sample, [1.0, 5.0, 2.0, 70.0]), console=False)
    # when
    with pytest.raises(torch.OutOfMemoryError):
        _play(monitor, 3, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has 10 GiB"))
    # then
    (peak,) = monitor.peaks()
    assert (peak.bytes, peak.step) == (70 * GIB, 4)
    last = read_monitor_log(tmp_path / "plugins/tbmem/monitor.jsonl").rows[-1]
    assert (last.sample.step, last.sample.peak_allocated) == (4, 70 * GIB)
    # the level at the end of a step that had none is not known
    assert (last.allocated_min, last.allocated_max) == (None, None)


def test_counters_that_fail_switch_it_off_once(make_sample: MakeSample, caplog: pytest.LogCaptureFixture) -> None:
    # given counters that break at step 3
    class Broken(SeriesCounters):
        def sample(self, step: int, *, thorough: bool, profiled: bool = False) -> list[MemorySample]:
            if step == 3:
                raise OSError("no such counter")
            return super().sample(step, thorough=thorough, profiled=profiled)

    monitor = MemoryMonitor(counters=Broken(make_sample, [1.0, 1.0]), console=False)

    # when ten steps are trained
    with caplog.at_level(logging.WARNING, "tbmem"):
        _play(monitor, 10)

    # then there is one line
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["monitor is off"]


def test_this_machines_own_counters_agree_with_malloc() -> None:
    # given a monitor of this process
    with MemoryMonitor(console=False, devices="cpu") as monitor:
        assert monitor._counters is not None
        (before,) = monitor._counters.sample(1, thorough=False)
        # when 64 MiB are held
        held = torch.zeros(16 << 20)
        (after,) = monitor._counters.sample(3, thorough=False)

    # then the level rises by just that
    if before.allocated is None or after.allocated is None:
        pytest.skip("malloc here has no counters")
    assert after.allocated - before.allocated == pytest.approx(held.nbytes, rel=0.02)


def test_peaks_of_two_monitors_do_not_hide_each_other() -> None:
    # given two monitors at once
    with MemoryMonitor(console=False) as one, MemoryMonitor(console=False) as other:
        for monitor in (one, other):
            monitor.step()
        # when 200 MB come and go between two of their steps
        torch.ones(50_000_000)
        one.step()
        other.step()
        rises = [monitor.peaks()[0] for monitor in (one, other)]

    # then both have seen it
    if rises[0].counter != "host_peak_rss":
        pytest.skip("this kernel does not let the peak be reset")
    assert all(rise.step == 2 for rise in rises)


def test_an_unknown_device_is_one_line() -> None:
    monitor = MemoryMonitor(devices="cuda:99", console=False)

    with pytest.raises(ConfigError) as caught:
        monitor.start()
    assert str(caught.value).startswith("monitor.devices: no device 'cuda:99' here; set auto or some of cpu")


def test_a_refused_device_leaves_no_folder(tmp_path: Path) -> None:
    for watch in (
        MemoryMonitor(devices="cpu, cuda:99", folder=tmp_path / "run", console=False),
        MemoryCallback(run={"logdir": str(tmp_path / "runs")}, monitor={"devices": "cuda:99"}),
    ):
        with pytest.raises(ConfigError, match=r"^monitor\.devices: no device 'cuda:99' here"):
            watch.start()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", ["x.yaml", {"enabled": True}, PatternsConfig()])
def test_what_is_no_section_is_refused_in_one_line(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"^monitor: takes a MonitorConfig or keywords") as caught:
        MemoryMonitor(wrong)
    assert "\n" not in str(caught.value)


def test_it_serves_one_run(make_sample: MakeSample) -> None:
    monitor = MemoryMonitor(counters=SeriesCounters(make_sample, [1.0]), console=False)
    _play(monitor, 1)

    assert monitor.step() == ()
    with pytest.raises(UsageError, match="make a new one"):
        monitor.start()


def test_defaults_are_those_of_the_configuration() -> None:
    assert MemoryMonitor().config == MonitorConfig()


def test_steps_at_which_nothing_is_due_are_passed_over_and_logged(tmp_path: Path, make_sample: MakeSample) -> None:
    # given
    counters = RestingCounters(make_sample, [1.0] * 23)
    monitor = MemoryMonitor(folder=tmp_path, counters=counters, console=False, log_every_n_steps=5)

    # when 23 steps end
    _play(monitor, 23)

    # then the counters were asked now and then only, and as the run ended
    assert counters.sampled == [1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24]
    assert counters.thorough == [5, 12, 16, 20, 24]
    # and each step is in a row, those at the end as well
    assert monitor.log_path is not None
    rows = read_monitor_log(monitor.log_path).rows
    assert [(row.first_step, row.count, row.sample.step) for row in rows] == [
        (1, 5, 5),
        (6, 5, 10),
        (11, 5, 15),
        (16, 5, 20),
        (21, 3, 23),
    ]


def test_an_open_window_delays_the_evaluation_by_a_second_at_most(
    make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given: memory that grows by 2 GiB at every step, and steps of 0.1 s under an open profiler window
    clock = [100.0]
    monkeypatch.setattr("tbmem.runtime.monitor.time.monotonic", lambda: clock[0])
    monitor = MemoryMonitor(counters=SeriesCounters(make_sample, [45 + 2 * n for n in range(60)]), console=False)
    judged: list[int] = []
    with monitor:
        monkeypatch.setattr(monitor, "_process_batch", lambda now: judged.append(len(monitor._new)))
        monitor._judge_step, monitor._judge_time = 0, clock[0]
        # when
        for _ in range(9):
            clock[0] += 0.1
            monitor.step(profiled=True)
        during = list(judged)
        clock[0] += 0.2
        monitor.step(profiled=True)
        # then: nothing is evaluated in a window of usual length, and everything in a long one
        assert during == []
        assert judged == [10]
        # and at once after a window
        monitor._judge_time = clock[0]
        monitor.step()
        assert judged == [10, 11]
