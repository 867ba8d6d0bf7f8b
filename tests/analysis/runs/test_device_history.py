"""A device's course, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tbmem.analysis.runs.device_history import DeviceHistory
from tbmem.model.sample_row import SampleRow
from tests.conftest import GIB, MIB, MakeSample
from tests.spikes import spike_in_a_window


def _row(
    make_sample: MakeSample, step: int, allocated: float, peak: float | None = None, **others: object
) -> SampleRow:
    sample = make_sample(step, allocated, peak, **others)
    level = sample.allocated
    return SampleRow(first_step=step, count=1, allocated_min=level, allocated_max=level, sample=sample)


def test_the_highest_peak_and_its_step(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    for step, peak in ((10, 3.0), (20, 5.0), (30, 4.0)):
        track.add(_row(make_sample, step, 2.0, peak))

    assert track.peak is not None
    assert (track.peak.bytes, track.peak.step, track.peak.counter) == (5 * GIB, 20, "peak_allocated")


def test_a_peak_is_not_above_the_capacity(make_sample: MakeSample) -> None:
    # given a limit of addresses up to which less seemed to be left than was
    track = DeviceHistory("cpu", 0)
    sample = make_sample(10, 1.0, device="cpu", host_peak_rss=3 * GIB, device_total=2 * GIB)
    sample = sample._replace(peak_allocated=None)
    track.add(SampleRow(first_step=10, count=1, allocated_min=GIB, allocated_max=GIB, sample=sample))

    assert track.peak is not None
    assert (track.peak.total, track.peak.headroom) == (3 * GIB, 0)


def test_a_peak_in_a_row_of_ten_steps_was_in_the_one_that_the_row_names(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    sample = make_sample(50, 2.0, 3.0)
    track.add(SampleRow(first_step=41, count=10, allocated_min=GIB, allocated_max=GIB, sample=sample, peak_step=47))

    assert track.peak is not None
    assert track.peak.step == 47


def test_a_device_without_a_peak_counter_reached_the_rows_highest_level(make_sample: MakeSample) -> None:
    track = DeviceHistory("mps", 0)
    sample = make_sample(10, 1.0, device="mps")._replace(peak_allocated=None)
    track.add(SampleRow(first_step=1, count=10, allocated_min=GIB, allocated_max=2 * GIB, sample=sample))

    assert track.peak is not None
    assert (track.peak.bytes, track.peak.counter) == (2 * GIB, "allocated")


@pytest.mark.parametrize(("device", "own"), [("cpu", 20 * MIB), ("cuda:0", 0)])
def test_what_tbmem_has_added_to_the_resident_memory_is_told_beside_its_peak(
    device: str, own: int, make_sample: MakeSample
) -> None:
    track = DeviceHistory(device, 0)
    host: dict[str, object] = {"host_peak_rss": GIB, "host_own": 20 * MIB}
    if device == "cpu":
        host["peak_allocated"] = None
    track.add(_row(make_sample, 10, 0.5, device=device, **host))

    assert track.peak is not None
    assert track.peak.own == own
    assert track.peak.of_the_program == track.peak.bytes - own


def test_a_higher_step_of_the_cpu_that_was_recorded_is_told_beside_the_peak(make_sample: MakeSample) -> None:
    # given
    track, resident = DeviceHistory("cpu", 0), {10: 2 * GIB, 11: 3 * GIB, 12: GIB}
    # when
    for step, peak in resident.items():
        track.add(
            _row(make_sample, step, 0.5, device="cpu", peak_allocated=None, host_peak_rss=peak, profiled=step < 12)
        )
    # then
    assert track.peak is not None
    assert (track.peak.bytes, track.peak.step) == (GIB, 12)
    assert (track.peak.recorded, track.peak.recorded_step) == (3 * GIB, 11)


def test_growth_is_that_of_the_floor_after_the_start(make_sample: MakeSample) -> None:
    # given a run that sets itself up, then gains 2 MiB a step, with a spike on the way
    track = DeviceHistory("cuda:0", 0)
    for step in range(1, 101):
        level = 1.0 + step * 2 / 1024 + (5.0 if step == 50 else 0.0) - (1.0 if step < 10 else 0.0)
        track.add(_row(make_sample, step, level))

    assert track.growth_per_step() == pytest.approx(2 * MIB, rel=0.01)


def test_a_level_that_has_changed_once_does_not_grow(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    for step in range(1, 101):
        track.add(_row(make_sample, step, 1.0 if step < 60 else 2.0))

    assert track.growth_per_step() == 0


def test_three_points_tell_nothing(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    for step in (1, 2, 3):
        track.add(_row(make_sample, step, step))

    assert track.growth_per_step() is None


def test_a_long_run_keeps_its_shape_in_little_room(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    for step in range(1, 10_001):
        track.add(_row(make_sample, step, 1.0 + step / 1024))

    levels = track.levels.parts(10)
    assert len(track._low_water) <= 2049
    assert levels == sorted(levels)
    assert levels[-1] == track.levels.parts(4096)[-1] == round((1.0 + 10_000 / 1024) * GIB)
    assert track.growth_per_step() == pytest.approx(MIB, rel=0.01)


def test_a_spike_that_is_over_at_the_end_of_its_step_is_in_the_shape(make_sample: MakeSample) -> None:
    # given on a GPU, and on the CPU, where the step's resident peak is known
    gpu, cpu = DeviceHistory("cuda:0", 0), DeviceHistory("cpu", 0)
    for step in range(1, 9):
        peak = 9.0 if step == 5 else 3.0
        gpu.add(_row(make_sample, step, 2.0, peak))
        resident = {"device": "cpu", "peak_allocated": None, "host_peak_rss": round(peak * GIB)}
        cpu.add(_row(make_sample, step, 1.0, **resident))

    for track in (gpu, cpu):
        assert track.peaks.parts(8) == [(9 if step == 5 else 3) * GIB for step in range(1, 9)]


def test_a_spike_of_a_long_run_stays_in_its_shape(make_sample: MakeSample) -> None:
    track = DeviceHistory("cuda:0", 0)
    for step in range(1, 5001):
        track.add(_row(make_sample, step, 2.0, 9.0 if step == 4000 else 3.0))

    assert sorted(level // GIB for level in track.peaks.parts(10)) == [3] * 9 + [9]


def test_a_spike_in_a_window_is_in_the_shape(make_sample: MakeSample) -> None:
    # given
    track = DeviceHistory("cpu", 0)
    for step in range(1, 9):
        resident = {"device": "cpu", "peak_allocated": None, "host_peak_rss": 3 * GIB, "profiled": step in (4, 5)}
        track.add(_row(make_sample, step, 1.0, **resident))
    # when
    track.add_finding(spike_in_a_window(5, {"peak_bytes": 9 * GIB, "left_out_bytes": MIB}))
    # then: of the steps 1, 2, 3, 6, 7 and 8 the next one is as high
    assert [peak // GIB for peak in track.peaks.parts(6)] == [3, 3, 3, 9, 3, 3]


def test_rows_under_the_profiler_are_not_the_cpus_own(make_sample: MakeSample) -> None:
    track = DeviceHistory("cpu", 0)
    track.add(_row(make_sample, 1, 1.0, device="cpu", profiled=True))
    track.add(_row(make_sample, 2, 2.0, device="cpu"))

    assert track.levels.parts(5) == [2 * GIB]


def test_what_a_profiler_leaves_behind_is_no_growth(make_sample: MakeSample) -> None:
    # given: a MiB a step on the CPU; a window in steps 11 to 20 leaves a GiB behind
    track = DeviceHistory("cpu", 0)
    for step in range(1, 61):
        level = 1.0 + step / 1024 + (1.0 if step > 10 else 0.0)
        track.add(_row(make_sample, step, level, device="cpu", profiled=10 < step <= 20))

    assert track.growth_per_step() == pytest.approx(MIB, rel=1e-6)
    assert track.judged == 50


def test_a_level_that_nobody_read_is_no_point(make_sample: MakeSample) -> None:
    # given: a MiB a step; of every second row the level of the one before stands in
    track = DeviceHistory("cpu", 0)
    for step in range(1, 61):
        row = _row(make_sample, step, 1.0 + step / 1024, device="cpu")
        track.add(row if step % 2 else replace(row, allocated_min=None, allocated_max=None))

    assert len(track.levels.parts(100)) == 30
    assert track.growth_per_step() == pytest.approx(MIB, rel=1e-6)


def test_the_floor_of_a_row_is_that_of_its_first_step(make_sample: MakeSample) -> None:
    # given: rows of one to ten steps, and a MiB a step
    track, first = DeviceHistory("cpu", 0), 1
    for count in (10, 1, 9, 3, 7, 10, 10, 2, 8, 10):
        last = first + count - 1
        low, high = (GIB + step * MIB for step in (first, last))
        sample = make_sample(last, high / GIB, device="cpu")
        track.add(SampleRow(first_step=first, count=count, allocated_min=low, allocated_max=high, sample=sample))
        first = last + 1

    assert track.growth_per_step() == pytest.approx(MIB, rel=1e-6)
