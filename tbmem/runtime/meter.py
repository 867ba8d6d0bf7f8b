"""Measures the peak memory of a piece of work and its growth per repetition."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable
from types import FrameType

from tbmem.analysis.growth_rate import growth_per_repetition
from tbmem.sources.counters.devices import CPU, Device, available_devices, open_device
from tbmem.sources.counters.host import HostMemory
from tbmem.sources.counters.malloc import MallocHeap


class MemoryMeter:
    """Measures the memory of a test; unlike MemoryMonitor it collects garbage.

    On an accelerator the peak is that of the allocator; on the CPU it is the kernel's peak of resident memory, after
    malloc's free memory was released. Levels are the bytes allocated by tensors (on the CPU: by malloc). The device is
    by default the accelerator that the work uses, else the CPU. Raises ConfigError if there is no such device here.
    """

    def __init__(self, device: str | None = None) -> None:
        self._wanted = device
        self.observer: Callable[[FrameType], None] | None = None
        """Called at each step with the frame that called ``step()``."""
        self._freezes = False
        self._host = HostMemory(workers=False)
        self._heap = MallocHeap.of_this_process(rationed=False)
        names = [device] if device is not None else available_devices()
        self._accelerators: dict[str, Device] = {}
        try:
            for name in names:
                if name != CPU:
                    self._accelerators[name] = open_device(name, self._host, reset_peaks=True)
        except BaseException:
            self.close()
            raise
        self._levels: dict[str, list[int]] = {name: [] for name in (CPU, *self._accelerators)}
        self._peaks = dict.fromkeys(self._levels, 0)
        # release the garbage of earlier tests and malloc's free memory
        gc.collect()
        with contextlib.suppress(OSError, AttributeError, TypeError):
            ctypes.CDLL(None).malloc_trim(0)
        self._bases = {name: self._level(name) for name in self._accelerators}
        # objects that exist already are excluded from each collection
        self._freezes = gc.get_freeze_count() == 0
        if self._freezes:
            gc.freeze()
        self._base_resident = self._host.rss()
        self._host.peak_rss()

    @property
    def device(self) -> str:
        """The device that is evaluated."""
        if self._wanted is not None:
            return self._wanted
        used = [name for name in self._accelerators if self._peaks[name] > 0 or any(self._levels[name])]
        return max(used, key=lambda name: self._peaks[name], default=CPU)

    @property
    def steps(self) -> int:
        """Repetitions so far."""
        return len(self._levels[CPU])

    @property
    def peak(self) -> int:
        """Peak above the level at the start, in bytes."""
        self._take_peaks()
        return self._peaks[self.device]

    def step(self) -> None:
        """Record the end of a repetition."""
        self._take_peaks()
        gc.collect()
        for name, levels in self._levels.items():
            levels.append(self._level(name))
        if self.observer is not None:
            self.observer(sys._getframe(1))

    def kept_per_step(self) -> float | None:
        """Growth per repetition in bytes; ``None`` if there were too few repetitions."""
        self._take_peaks()
        return growth_per_repetition(self._levels[self.device])

    def close(self) -> None:
        """Close all counters."""
        if self._freezes:
            gc.unfreeze()
        for device in self._accelerators.values():
            device.close()
        self._host.close()

    def _level(self, name: str) -> int:
        if name != CPU:
            return self._accelerators[name].read().allocated or 0
        handed_out = self._heap.read().allocated
        return self._host.rss() if handed_out is None else handed_out

    def _take_peaks(self) -> None:
        resident = (self._host.peak_rss() or self._host.rss()) - self._base_resident
        self._peaks[CPU] = max(self._peaks[CPU], resident)
        for name, device in self._accelerators.items():
            reading = device.read()
            reached = reading.allocated if reading.peak_allocated is None else reading.peak_allocated
            self._peaks[name] = max(self._peaks[name], (reached or 0) - self._bases[name])
