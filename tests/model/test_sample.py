"""One step's counters."""

from __future__ import annotations

import pytest

from tbmem.model.sample import MemorySample
from tests.conftest import GIB, MakeSample


def test_counters_that_are_not_given_are_unknown() -> None:
    # given / when
    sample = MemorySample(step=1, time=0.0, device="mps")
    # then
    known = {"step", "time", "device", "rank", "profiled"}
    assert [name for name in sample._fields if name not in known and getattr(sample, name) is not None] == []
    assert sample.rank == 0
    assert sample.profiled is False


def test_a_sample_cannot_be_changed(make_sample: MakeSample) -> None:
    sample = make_sample(1, 45.0)
    with pytest.raises(AttributeError):
        sample.step = 2  # type: ignore[misc]


def test_step_time_and_device_must_be_given() -> None:
    with pytest.raises(TypeError):
        MemorySample(step=1)  # type: ignore[call-arg]


def test_a_devices_reading_fills_the_sample_in_order() -> None:
    # given: Counters.sample writes a reading into a sample by position
    from tbmem.model.sample import DeviceReading

    own = MemorySample._fields
    assert own[4 : 4 + len(DeviceReading._fields)] == DeviceReading._fields


@pytest.mark.parametrize(
    ("counters", "peak"),
    [
        ({"peak_allocated": 9, "host_peak_rss": 7, "allocated": 5}, 9),
        ({"host_peak_rss": 7, "allocated": 5}, 7),
        ({"allocated": 5}, None),
        ({"host_rss": 5, "reserved": 9}, None),
        ({}, None),
        ({"peak_allocated": 0, "allocated": 5}, 0),
    ],
    ids=["device", "host", "level", "neither", "nothing", "zero is a value"],
)
def test_the_peak_is_the_best_counter_that_there_is(counters: dict[str, int], peak: int | None) -> None:
    # given
    sample = MemorySample(step=1, time=0.0, device="cpu", **counters)  # type: ignore[arg-type]
    # when / then
    assert sample.peak == peak


def test_equal_counters_are_equal_samples(make_sample: MakeSample) -> None:
    assert make_sample(3, 45.0, 46.0) == make_sample(3, 45.0, 46.0)
    assert make_sample(3, 45.0, 46.0) != make_sample(3, 45.0, 46.0, rank=1)
    assert make_sample(3, 45.0).allocated == 45 * GIB
