"""How full the feed finds a device."""

from __future__ import annotations

import pytest

from tbmem.analysis.detector.feed import SampleFeed
from tbmem.analysis.detector.thresholds import CapacityEvent
from tbmem.config.schema import PatternsConfig
from tbmem.model.sample import MemorySample
from tests.conftest import GIB, MakeSample


def used_percent(sample: MemorySample) -> float | None:
    """How full the watch finds the device."""
    feed = SampleFeed(PatternsConfig(capacity_percent=(1e-9, 1e-8, 1e-7)))
    full = [event for columns in feed.columns([sample]) for event in feed.take(columns)]
    return full[0].percent if full and isinstance(full[0], CapacityEvent) else None


def test_an_accelerator_counts_its_own_peak(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, 78.0)) == pytest.approx(97.5)


def test_what_other_processes_use_counts_as_well(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, 46.0, device_used=60 * GIB)) == pytest.approx(75.0)
    assert used_percent(make_sample(1, 45.0, 70.0, device_used=60 * GIB)) == pytest.approx(87.5)


def test_the_cpu_counts_the_whole_machine(make_sample: MakeSample) -> None:
    # given
    sample = make_sample(1, 45.0, device="cpu", host_available=20 * GIB)
    # when / then
    assert used_percent(sample) == pytest.approx(75.0)
    assert used_percent(sample._replace(host_available=0)) == pytest.approx(100.0)


@pytest.mark.parametrize("total", [None, 0])
def test_without_a_capacity_nothing_can_be_said(total: int | None, make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, device_total=total)) is None


def test_a_cpu_that_does_not_tell_what_is_available_is_not_judged(make_sample: MakeSample) -> None:
    assert used_percent(make_sample(1, 45.0, device="cpu")) is None


def test_counters_that_are_none_use_nothing() -> None:
    assert used_percent(MemorySample(step=1, time=0.0, device="cuda:0", device_total=80 * GIB)) is None
