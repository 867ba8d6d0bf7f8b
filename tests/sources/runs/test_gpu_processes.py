"""Processes on GPUs, as a stand-in for NVML tells them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tbmem.sources.runs.gpu_processes import GpuProcess, GpuProcesses


class FakeNvml:
    """The functions of pynvml that are called, on GPUs with bytes by process id."""

    class NVMLError(Exception):
        """The library's error."""

    def __init__(self, gpus: Mapping[int, Mapping[int, int | None]]) -> None:
        self.gpus = gpus
        self.is_on = False
        self.fails = False

    def nvmlInit(self) -> None:
        self.is_on = True

    def nvmlShutdown(self) -> None:
        self.is_on = False

    def nvmlDeviceGetCount(self) -> int:
        if self.fails:
            raise self.NVMLError("driver was unloaded")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:
        return number

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[Any]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in self.gpus[handle].items()]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: int) -> list[Any]:
        raise self.NVMLError("not supported")


def test_processes_by_gpu_the_largest_first() -> None:
    # given
    gone = 1 << 22  # above the highest process id
    nvml = FakeNvml({0: {gone: 1 << 30, os.getpid(): 3 << 30}, 1: {gone + 1: None}})
    gpus = GpuProcesses(nvml)
    # when
    own, other, unknown = gpus.read()
    # then
    assert (own.gpu, own.pid, own.bytes) == (0, os.getpid(), 3 << 30)
    assert own.name.startswith("python")
    assert other == GpuProcess(0, gone, "", 1 << 30)
    assert unknown == GpuProcess(1, gone + 1, "", None)
    gpus.close()
    assert not nvml.is_on
    assert gpus.read() == []


def test_without_the_library_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)

    gpus = GpuProcesses()

    assert not gpus.is_known
    assert gpus.read() == []
    gpus.close()


def test_a_driver_that_goes_away_ends_the_reading() -> None:
    nvml = FakeNvml({0: {}})
    gpus = GpuProcesses(nvml)
    nvml.fails = True

    assert gpus.read() == []
    assert not gpus.is_known
