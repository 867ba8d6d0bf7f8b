from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tbmem.errors import ConfigError
from tbmem.sources.counters.devices import (
    CachingDevice,
    CpuDevice,
    DeviceReading,
    available_devices,
    devices_in_use,
    open_device,
)
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.malloc import MallocHeap
from tests.sources.fakes import GIB, MIB, FakeCuda, Forbidden


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A machine with two GPUs, in use by nobody."""
    fake = FakeCuda(devices=2, initialized=False)
    monkeypatch.setattr(torch, "cuda", fake)
    return fake


@pytest.fixture
def host() -> Iterator[HostMemory]:
    memory = HostMemory(reset_peaks=False, workers=False)
    yield memory
    memory.close()


def test_the_counters_are_those_of_the_allocator() -> None:
    # given
    cuda = FakeCuda()
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=False)
    cuda.malloc(5 * MIB)
    cuda.spike(3 * MIB)
    cuda.allocators[0].retries = 2
    cuda.allocators[0].ooms = 1
    # when
    reading = device.read()
    # then
    assert reading == DeviceReading(
        allocated=5 * MIB,
        reserved=8 * MIB,
        peak_allocated=8 * MIB,
        peak_reserved=8 * MIB,
        active=5 * MIB,
        inactive_split=3 * MIB,
        live_blocks=1,
        alloc_retries=2,
        ooms=1,
    )


def test_each_step_has_its_own_peak() -> None:
    # given
    cuda = FakeCuda()
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    cuda.malloc(4 * MIB)
    device.read()
    # when one step spikes and the next does not
    cuda.spike(20 * MIB)
    spiking, calm = device.read(), device.read()
    # then
    assert (spiking.allocated, spiking.peak_allocated) == (4 * MIB, 24 * MIB)
    assert (calm.allocated, calm.peak_allocated) == (4 * MIB, 4 * MIB)
    assert calm.peak_reserved == 24 * MIB
    device.close()


def test_without_resets_a_peak_is_known_only_where_it_rose() -> None:
    # given
    cuda = FakeCuda()
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=False)
    cuda.malloc(4 * MIB)
    # when
    peaks = []
    for spike in (20, 10, 30):
        cuda.spike(spike * MIB)
        peaks.append(device.read().peak_allocated)
    # then
    assert peaks == [24 * MIB, None, 34 * MIB]
    assert cuda.calls["reset_peak_memory_stats"] == 0


def test_two_monitors_of_one_device_both_see_the_spike() -> None:
    # given
    cuda = FakeCuda()
    first = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    second = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    # when
    cuda.spike(64 * MIB)
    # then
    assert first.read().peak_allocated == second.read().peak_allocated == 64 * MIB
    assert first.read().peak_allocated == second.read().peak_allocated == 0
    first.close()
    second.close()


def test_two_devices_do_not_share_a_peak() -> None:
    # given
    cuda = FakeCuda(devices=2)
    devices = [CachingDevice(cuda, "cuda", index, reset_peaks=True) for index in (0, 1)]
    # when
    cuda.spike(64 * MIB, device=1)
    # then
    assert [device.read().peak_allocated for device in devices] == [0, 64 * MIB]
    for device in devices:
        device.close()


def test_a_device_that_was_never_used_has_no_counters() -> None:
    # given
    cuda = FakeCuda(initialized=False)
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    # when
    reading = device.read()
    # then
    assert reading == DeviceReading()
    assert not cuda.initialized
    device.close()


def test_a_device_that_was_never_used_is_not_woken_up_to_learn_its_size() -> None:
    # given
    cuda = FakeCuda(initialized=False)
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    # when
    usage = device.read_usage()
    # then no context was made, which would cost memory and break a later fork
    assert usage is None
    assert not cuda.initialized
    device.close()


def test_usage_counts_all_processes() -> None:
    # given
    cuda = FakeCuda(total=80 * GIB, used_by_others=3 * GIB)
    cuda.malloc(2 * MIB)
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    # when
    usage = device.read_usage()
    # then
    assert usage == (3 * GIB + 2 * MIB, 80 * GIB)
    device.close()


def test_the_driver_is_not_asked_while_a_graph_is_captured() -> None:
    # given
    cuda = FakeCuda()
    cuda.capturing = True
    cuda.malloc(2 * MIB)
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    # when
    usage, reading = device.read_usage(), device.read()
    # then
    assert usage is None
    assert cuda.calls["mem_get_info"] == 0
    assert reading.allocated == 2 * MIB
    device.close()


def test_a_reading_asks_nothing_but_the_counters() -> None:
    # given
    cuda = FakeCuda()
    device = CachingDevice(cuda, "cuda", 0, reset_peaks=True)
    cuda.calls.clear()
    # when
    device.read()
    # then
    assert cuda.calls == {"memory_stats_as_nested_dict": 1, "reset_peak_memory_stats": 1}
    device.close()


def test_the_stand_in_refuses_what_is_forbidden() -> None:
    # given
    cuda = FakeCuda()
    # then
    for call in (cuda.synchronize, cuda.empty_cache):
        with pytest.raises(Forbidden):
            call()


def test_devices_in_use_are_those_that_hold_memory(cuda: FakeCuda) -> None:
    # given
    before = devices_in_use()
    # when
    cuda.malloc(1, device=1)
    # then
    assert before == ["cpu"]
    assert devices_in_use() == ["cuda:1"]
    assert available_devices() == ["cpu", "cuda:0", "cuda:1"]


def test_looking_for_devices_wakes_none_up(cuda: FakeCuda) -> None:
    # when
    devices_in_use()
    available_devices()
    # then
    assert not cuda.initialized
    assert set(cuda.calls) <= {"is_available", "is_initialized", "device_count"}


def test_a_device_is_opened_by_name(cuda: FakeCuda, host: HostMemory) -> None:
    # when
    device = open_device("cuda:1", host, reset_peaks=True)
    cuda.malloc(6 * MIB, device=1)
    # then
    assert device.name == "cuda:1"
    assert device.read().allocated == 6 * MIB
    device.close()


@pytest.mark.parametrize("name", ["cuda:2", "cuda", "gpu", "", "mps", "cuda:-1", "cuda:0 cuda:1"])
def test_an_unknown_device_is_one_clear_line(cuda: FakeCuda, host: HostMemory, name: str) -> None:
    # when
    with pytest.raises(ConfigError, match=r"^monitor\.devices: ") as caught:
        open_device(name, host, reset_peaks=True)
    # then
    assert repr(name) in str(caught.value)
    assert "cpu, cuda:0, cuda:1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_cpu_reads_malloc(host: HostMemory) -> None:
    # given
    device = CpuDevice(host, MallocHeap(lambda: (107, 120)))
    # when
    reading = device.read()
    # then
    assert device.counts_malloc
    assert (reading.allocated, reading.reserved, reading.peak_allocated) == (107, 120, None)


def test_the_cpu_without_glibc_reads_the_resident_memory(host: HostMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    monkeypatch.setattr(host, "rss", lambda: 123)
    device = CpuDevice(host, MallocHeap(None))
    # when
    reading = device.read()
    # then
    assert not device.counts_malloc
    assert reading == DeviceReading(allocated=123, reserved=123)


def test_the_cpu_has_no_figures_while_malloc_is_rationed(host: HostMemory) -> None:
    # given three readings that took a second each, and the next one a moment later
    times, worked = iter([0.0, 1.0, 2.0, 3.5]), iter([0.0, 1.0, 1.0, 2.0, 2.0, 3.0])
    heap = MallocHeap(lambda: (107, 120), lambda: next(times), lambda: next(worked))
    device = CpuDevice(host, heap)
    for _ in range(3):
        device.read()
    # when
    reading = device.read()
    # then
    assert reading == DeviceReading()


def test_the_cpus_usage_is_the_hosts(host: HostMemory) -> None:
    # given
    host.total, host.available = 64 * GIB, 24 * GIB
    device = open_device("cpu", host, reset_peaks=True)
    # when
    usage = device.read_usage()
    # then
    assert usage == (40 * GIB, 64 * GIB)


class _FakeAccelerator:
    """``torch.accelerator`` over a device that torch has no module of our kind for."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda

    def current_accelerator(self, check_available: bool = False) -> torch.device:
        return torch.device("hpu")

    def device_count(self) -> int:
        return self._cuda.device_count()

    def memory_stats(self, index: int) -> dict[str, Any]:
        return _flatten(self._cuda.memory_stats_as_nested_dict(index))

    def memory_reserved(self, index: int) -> int:
        return self._cuda.memory_reserved(index)

    def reset_peak_memory_stats(self, index: int) -> None:
        self._cuda.reset_peak_memory_stats(index)

    def get_memory_info(self, index: int) -> tuple[int, int]:
        return self._cuda.mem_get_info(index)


def _flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        flat.update(_flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value})
    return flat


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """A machine whose accelerator is neither CUDA nor XPU nor MPS."""
    counters = FakeCuda()
    monkeypatch.setattr(torch, "accelerator", _FakeAccelerator(counters))
    return counters


def test_another_kind_of_accelerator_is_read_through_the_generic_module(
    accelerator: FakeCuda, host: HostMemory
) -> None:
    # given
    accelerator.malloc(6 * MIB)
    # when
    device = open_device("hpu:0", host, reset_peaks=True)
    accelerator.spike(10 * MIB)
    reading = device.read()
    # then
    assert devices_in_use() == ["hpu:0"]
    assert (reading.allocated, reading.peak_allocated, reading.live_blocks) == (6 * MIB, 16 * MIB, 1)
    assert device.read_usage() == (16 * MIB, 80 * GIB)
    device.close()


def test_two_monitors_of_another_kind_of_accelerator_both_see_the_spike(
    accelerator: FakeCuda, host: HostMemory
) -> None:
    # given
    first = open_device("hpu:0", host, reset_peaks=True)
    second = open_device("hpu:0", host, reset_peaks=True)
    # when
    accelerator.spike(64 * MIB)
    # then
    assert first.read().peak_allocated == second.read().peak_allocated == 64 * MIB
    first.close()
    second.close()
