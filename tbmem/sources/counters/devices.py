"""Devices of this machine and their memory counters, as torch or malloc keep them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, Protocol

import torch

from tbmem.errors import ConfigError
from tbmem.model.sample import NOTHING, DeviceReading
from tbmem.requirements import TorchFeature
from tbmem.sources.counters.host import HostMemory, SharedPeak
from tbmem.sources.counters.malloc import MallocHeap

CPU, AUTO = "cpu", "auto"
_SHARED_PEAKS: dict[tuple[int, str], SharedPeak] = {}
"""The resetting counters by module and device: all monitors share them."""


class Device(Protocol):
    """One device whose memory can be read."""

    name: str  # ``'cuda:0'``; as in ``MemorySample.device``

    @property
    def rest(self) -> float:
        """Seconds after a reading in which no other is due; 0 where each step may have one."""
        return 0.0

    def read(self) -> DeviceReading:
        """The counters now; cheap enough for every step."""

    def meanwhile(self) -> tuple[int, int]:
        """Bytes in use now and at the last reading, whose counters it leaves as they are: for another thread."""

    def allocated_meanwhile(self) -> tuple[int, int] | None:
        """The same of what is allocated, where that is another figure; ``None`` where it cannot be read cheaply."""
        return None

    def read_usage(self) -> tuple[int, int] | None:
        """Bytes used by all processes and capacity, ``None`` if unknown; too expensive for every step."""

    def close(self) -> None:
        """Stop sharing counters with other readers."""
        return


class CachingDevice(Device):
    """A device with torch's caching allocator (CUDA, ROCm, XPU)."""

    def __init__(self, module: Any, kind: str, index: int, *, reset_peaks: bool) -> None:
        self.name = f"{kind}:{index}"
        self._module = module
        self._index = index
        self._run_peaks = (0, 0)
        self._level = 0
        self._peak: SharedPeak | None = None
        if reset_peaks:
            peak = SharedPeak(lambda: module.reset_peak_memory_stats(index))
            self._peak = _SHARED_PEAKS.setdefault((id(module), self.name), peak).join(self)

    def read(self) -> DeviceReading:
        """The allocator's counters now; without resets peaks are known only where they rose."""
        # the nested form: the flat one sorts and renames some hundred keys at every call
        stats = self._module.memory_stats_as_nested_dict(self._index)
        if not stats:
            return NOTHING
        allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
        self._level = allocated["current"]
        peaks: tuple[int | None, ...] = (allocated["peak"], reserved["peak"])
        if self._peak is not None:
            peaks = self._peak.take(self, (allocated["peak"], reserved["peak"]))
        else:
            before, self._run_peaks = self._run_peaks, (allocated["peak"], reserved["peak"])
            peaks = tuple(peak if peak > last else None for peak, last in zip(self._run_peaks, before, strict=True))
        return DeviceReading(
            allocated=allocated["current"],
            reserved=reserved["current"],
            peak_allocated=peaks[0],
            peak_reserved=peaks[1],
            active=_current(stats, "active_bytes"),
            inactive_split=_current(stats, "inactive_split_bytes"),
            live_blocks=_current(stats, "allocation"),
            alloc_retries=stats.get("num_alloc_retries"),
            ooms=stats.get("num_ooms"),
        )

    def meanwhile(self) -> tuple[int, int]:
        """Bytes allocated now and at the last reading."""
        stats = self._module.memory_stats_as_nested_dict(self._index)
        return (_current(stats, "allocated_bytes") or 0), self._level

    def read_usage(self) -> tuple[int, int] | None:
        """Bytes used by all processes and capacity."""
        # while a CUDA graph is being captured, a query of the driver could spoil it
        is_capturing = getattr(self._module, "is_current_stream_capturing", lambda: False)
        if not self._module.is_initialized() or is_capturing():
            return None
        usage = self._module.mem_get_info(self._index)
        return None if usage is None else (int(usage[1] - usage[0]), int(usage[1]))

    def close(self) -> None:
        """Stop sharing the peak counter."""
        if self._peak is not None:
            self._peak.leave(self)


def _current(stats: Mapping[str, Any], counter: str) -> int | None:
    """A counter that not every kind of device has (XPU counts bytes only)."""
    value: int | None = stats.get(counter, {}).get("all", {}).get("current")
    return value


@cache
def _accelerator() -> Any:
    """``torch.accelerator`` with the function names of ``torch.cuda``; monitors share it, and so its peak counter."""
    return SimpleNamespace(
        is_initialized=lambda: bool(torch.accelerator.memory_stats(0)),
        device_count=lambda: torch.accelerator.device_count(),
        memory_reserved=lambda index: torch.accelerator.memory_reserved(index),
        memory_stats_as_nested_dict=lambda index: _nest(torch.accelerator.memory_stats(index)),
        reset_peak_memory_stats=lambda index: torch.accelerator.reset_peak_memory_stats(index),
        # missing before torch 2.10
        mem_get_info=lambda index: getattr(torch.accelerator, "get_memory_info", lambda _: None)(index),
    )


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """``{'a.b': 1}`` as ``{'a': {'b': 1}}``."""
    nested: dict[str, Any] = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        inner = nested
        for part in path:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


class _MpsDevice(Device):
    """Apple's GPU, whose allocator keeps two counters and no peaks."""

    name = "mps"
    _level = 0

    def read(self) -> DeviceReading:
        self._level = torch.mps.current_allocated_memory()
        return DeviceReading(self._level, torch.mps.driver_allocated_memory())

    def meanwhile(self) -> tuple[int, int]:
        return torch.mps.current_allocated_memory(), self._level

    def read_usage(self) -> tuple[int, int] | None:
        if not hasattr(torch.mps, "recommended_max_memory"):  # before torch 2.5
            return None
        return torch.mps.driver_allocated_memory(), torch.mps.recommended_max_memory()


class CpuDevice(Device):
    """The CPU: bytes that malloc handed out and holds; where it has no counters both are the resident memory."""

    name = CPU

    def __init__(self, host: HostMemory, heap: MallocHeap) -> None:
        self._host, self._heap = host, heap
        self.counts_malloc = heap.usable  # whether the figures are malloc's, not the resident memory
        if heap.usable:
            self.read = heap.read  # type: ignore[method-assign]  # called in every step

    @property
    def rest(self) -> float:
        """Seconds after a reading of malloc in which no other is due."""
        return self._heap.rest

    def read(self) -> DeviceReading:
        """The resident memory, where malloc has no counters."""
        resident = self._host.rss()
        return DeviceReading(resident, resident)

    def meanwhile(self) -> tuple[int, int]:
        """Resident bytes now and at the last reading."""
        return self._host.rss_meanwhile(), self._host.resident

    def allocated_meanwhile(self) -> tuple[int, int] | None:
        """Bytes that malloc has handed out now and at the last reading."""
        return self._heap.meanwhile()

    def read_usage(self) -> tuple[int, int] | None:
        """Bytes used by all processes and capacity."""
        return self._host.total - self._host.available, self._host.total


def open_device(name: str, host: HostMemory, *, reset_peaks: bool) -> Device:
    """The device of that name.

    Raises:
        ConfigError: There is no such device here.
    """
    if name == CPU:
        return CpuDevice(host, MallocHeap.of_this_process(host.interval))
    if name == "mps" and torch.backends.mps.is_available():
        return _MpsDevice()
    _check_device(name)
    kind, _, index = name.partition(":")
    return CachingDevice(_caching_modules()[kind], kind, int(index), reset_peaks=reset_peaks)


def check_devices(names: str) -> None:
    """Check the names in ``monitor.devices``.

    Raises:
        ConfigError: One of them does not exist here.
    """
    for name in names.split(",") if names.strip() != AUTO else ():
        _check_device(name.strip())


def _check_device(name: str) -> None:
    if name not in available_devices():
        known = ", ".join(available_devices())
        missing = TorchFeature.ACCELERATOR.missing
        why = f"; {missing}" if missing else ""
        raise ConfigError(f"monitor.devices: no device {name!r} here; set auto or some of {known}{why}")


def _caching_modules() -> dict[str, Any]:
    """The kinds of devices here whose allocator keeps nested statistics, and the module of each."""
    modules = {kind: getattr(torch, kind) for kind in ("cuda", "xpu") if getattr(torch, kind).is_available()}
    if TorchFeature.ACCELERATOR.missing:
        return modules
    current = torch.accelerator.current_accelerator(check_available=True)
    if current is not None and current.type not in (*modules, "mps"):
        modules[current.type] = _accelerator()
    return modules


def available_devices() -> list[str]:
    """Every device whose memory can be watched here."""
    kinds = _caching_modules().items()
    names = [f"{kind}:{index}" for kind, module in kinds for index in range(module.device_count())]
    return [CPU, *names, *(("mps",) if torch.backends.mps.is_available() else ())]


def devices_in_use() -> list[str]:
    """The accelerators on which this process holds memory, without initializing one; else the CPU."""
    names = []
    for kind, module in _caching_modules().items():
        indices = range(module.device_count()) if module.is_initialized() else ()
        names += [f"{kind}:{index}" for index in indices if module.memory_reserved(index) > 0]
    if torch.backends.mps.is_available() and torch.mps.current_allocated_memory() > 0:
        names.append("mps")
    return names or [CPU]
