"""Memory that each process has on NVIDIA's GPUs, from the driver's library NVML."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import psutil


class GpuProcess(NamedTuple):
    """Memory of one process on one GPU."""

    gpu: int
    """Number of the GPU as the driver counts them."""
    pid: int
    name: str
    bytes: int | None
    """``None`` where the driver does not tell (in a container, under Windows)."""


class GpuProcesses:
    """Reads the processes of all GPUs; finds none where pynvml (nvidia-ml-py) or the driver is missing.

    Args:
        nvml: The module pynvml; imported by default.
    """

    def __init__(self, nvml: Any = None) -> None:
        self._nvml = _started(nvml)

    @property
    def is_known(self) -> bool:
        """Whether NVML is there."""
        return self._nvml is not None

    def read(self) -> list[GpuProcess]:
        """The processes now, by GPU, those with most memory first."""
        nvml = self._nvml
        if nvml is None:
            return []
        try:
            gpus = [(number, nvml.nvmlDeviceGetHandleByIndex(number)) for number in range(nvml.nvmlDeviceGetCount())]
            found = [process for number, handle in gpus for process in _on_gpu(nvml, number, handle)]
        except nvml.NVMLError:
            self._nvml = None  # the driver was unloaded
            return []
        return sorted(found, key=lambda process: (process.gpu, -(process.bytes or 0), process.pid))

    def close(self) -> None:
        """End the use of the library; may be called again."""
        nvml, self._nvml = self._nvml, None
        if nvml is not None:
            nvml.nvmlShutdown()


def _started(nvml: Any) -> Any:
    try:
        nvml = nvml or importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _on_gpu(nvml: Any, number: int, handle: Any) -> list[GpuProcess]:
    sizes: dict[int, int | None] = {}
    for ask in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
        try:
            # a process with both kinds of work is in both lists with the same figure
            sizes |= {process.pid: process.usedGpuMemory for process in ask(handle)}
        except nvml.NVMLError:
            continue
    return [GpuProcess(number, pid, _name(pid), size) for pid, size in sizes.items()]


def _name(pid: int) -> str:
    """The program and its first argument, ``'python train.py'``; empty where the process cannot be seen."""
    try:
        words = psutil.Process(pid).cmdline()[:2]
    except psutil.Error:
        return ""
    return " ".join(word.rpartition("/")[2] for word in words)
