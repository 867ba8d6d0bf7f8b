"""The meter of a test's memory, with work whose memory is known."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from tbmem import ConfigError
from tbmem.model.sample import DeviceReading
from tbmem.runtime import meter as module
from tbmem.runtime.meter import MemoryMeter
from tbmem.units import GIB, MIB


@pytest.fixture(autouse=True, scope="module")
def what_is_older_is_frozen() -> None:
    """Nothing is: a meter freezes what is older itself, and gives it back."""
    gc.unfreeze()


@pytest.fixture
def cpu() -> Iterator[MemoryMeter]:
    meter = MemoryMeter("cpu")
    yield meter
    meter.close()


@pytest.mark.parametrize(("keeps", "per_step"), [(True, MIB), (False, 0)])
def test_what_each_repetition_keeps(cpu: MemoryMeter, keeps: bool, per_step: int) -> None:
    # given work on 1 MiB that is kept, or only on the way
    kept: list[torch.Tensor] = []
    # when
    for _ in range(16):
        block = torch.ones(MIB // 4)
        kept = [*kept, block] if keeps else [block]
        del block
        cpu.step()
    # then
    assert cpu.steps == 16
    assert cpu.kept_per_step() == pytest.approx(per_step, abs=0.05 * MIB)


def test_the_peak_is_what_was_resident_at_once(cpu: MemoryMeter) -> None:
    large = torch.ones(256 * MIB // 4)
    del large
    small = torch.ones(16 * MIB // 4)

    assert cpu.device == "cpu"
    assert 255 * MIB <= cpu.peak < 320 * MIB  # the kernel counts pages in batches
    assert small.sum() == small.numel()


def test_too_few_repetitions_have_no_rate(cpu: MemoryMeter) -> None:
    cpu.step()
    cpu.step()
    assert cpu.kept_per_step() is None


def test_objects_that_were_there_are_left_out_of_each_collection_and_given_back() -> None:
    # given
    before = gc.get_freeze_count()
    # when one meter is in another
    outer = MemoryMeter("cpu")
    inner = MemoryMeter("cpu")
    inner.close()
    between = gc.get_freeze_count()
    outer.close()
    # then only the outer one has frozen them
    assert before == 0
    assert between > 0
    assert gc.get_freeze_count() == 0


def test_a_device_that_is_not_here_is_an_error_and_leaves_nothing() -> None:
    with pytest.raises(ConfigError):
        MemoryMeter("cuda:99")
    assert gc.get_freeze_count() == 0


class FakeDevice:
    """A device whose readings are given."""

    def __init__(self) -> None:
        self.allocated, self.peak = 2 * GIB, 2 * GIB
        self.is_closed = False

    def read(self) -> DeviceReading:
        peak, self.peak = self.peak, self.allocated
        return DeviceReading(allocated=self.allocated, peak_allocated=peak)

    def close(self) -> None:
        self.is_closed = True


def test_the_device_that_the_work_uses_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two devices with 2 GiB in use before
    devices = {"cuda:0": FakeDevice(), "cuda:1": FakeDevice()}
    monkeypatch.setattr(module, "available_devices", lambda: list(devices))
    monkeypatch.setattr(module, "open_device", lambda name, host, reset_peaks: devices[name])
    meter = MemoryMeter()
    # when the work peaks at 5 GiB on the second and keeps 1 GiB a repetition there
    for _ in range(12):
        devices["cuda:1"].peak = devices["cuda:1"].allocated + 3 * GIB
        devices["cuda:1"].allocated += GIB
        meter.step()
    meter.close()
    # then 2 GiB are not its own: the last peak is at 2 + 11 + 3 GiB
    assert meter.device == "cuda:1"
    assert meter.peak == 14 * GIB
    assert meter.kept_per_step() == pytest.approx(GIB)
    assert all(device.is_closed for device in devices.values())
